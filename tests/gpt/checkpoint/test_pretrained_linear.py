"""State dicts of minGPT and nanoGPT, saved as safetensors with a config.json: the same logits, or what is missing."""

import json
import re

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from regard.gpt import GPT

V, T, E, H, L = 31, 13, 20, 4, 2


class Attention(nn.Module):
    """CausalSelfAttention of both, with its buffer of a mask."""

    def __init__(self, bias):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(E, 3 * E, bias=bias), nn.Linear(E, E, bias=bias)
        self.register_buffer("bias", torch.ones(T, T).tril().view(1, 1, T, T))

    def forward(self, x):
        q, k, v = (t.view(*x.shape[:2], H, E // H).transpose(1, 2) for t in self.c_attn(x).split(E, dim=2))
        scores = (q @ k.mT) * (E // H) ** -0.5
        scores = scores.masked_fill(self.bias[:, :, : x.shape[1], : x.shape[1]] == 0, -torch.inf)
        return self.c_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, bias, approximate):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(E, bias=bias), nn.LayerNorm(E, bias=bias)
        self.attn, self.approximate = Attention(bias), approximate
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(E, 4 * E, bias=bias), "c_proj": nn.Linear(4 * E, E, bias=bias)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate=self.approximate))


class Theirs(nn.Module):
    """minGPT (two matrices, GELU by tanh) or nanoGPT (one tied matrix, exact GELU)."""

    def __init__(self, tied, approximate, bias=True):
        super().__init__()
        layers = nn.ModuleList(Layer(bias, approximate) for _ in range(L))
        parts = {"wte": nn.Embedding(V, E), "wpe": nn.Embedding(T, E), "h": layers, "ln_f": nn.LayerNorm(E, bias=bias)}
        self.transformer, self.lm_head = nn.ModuleDict(parts), nn.Linear(E, V, bias=False)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)
        if tied:
            self.lm_head.weight = self.transformer.wte.weight

    def forward(self, ids):
        x = self.transformer.wte(ids) + self.transformer.wpe(torch.arange(ids.shape[1]))
        for layer in self.transformer.h:
            x = layer(x)
        return self.lm_head(self.transformer.ln_f(x))


MODELS = {
    "minGPT": (Theirs(False, "tanh"), {"activation_function": "gelu_new", "tie_word_embeddings": False}),
    "nanoGPT": (Theirs(True, "none"), {"activation_function": "gelu"}),
    "nanoGPT without biases": (Theirs(True, "none", bias=False), {"activation_function": "gelu"}),
}


def save(model, directory, prefix="", **config):
    state = {prefix + name: tensor.clone().contiguous() for name, tensor in model.state_dict().items()}
    save_file(state, directory / "model.safetensors")
    sizes = {"vocab_size": V, "n_positions": T, "n_embd": E, "n_layer": L, "n_head": H, "eos_token_id": None}
    (directory / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes, **config}))


@torch.no_grad()
@pytest.mark.parametrize("prefix", ["", "_orig_mod."])
@pytest.mark.parametrize("name", MODELS)
def test_their_state_dict_gives_their_logits(name, prefix, tmp_path):
    theirs, config = MODELS[name]
    save(theirs, tmp_path, prefix, **config)
    ids = torch.randint(0, V, (3, 11))
    ours = GPT.from_pretrained(tmp_path)
    torch.testing.assert_close(ours(ids), theirs(ids))
    ours.save_pretrained(tmp_path / "again")
    torch.testing.assert_close(GPT.from_pretrained(tmp_path / "again")(ids), theirs(ids))


def test_which_gelu_it_is_must_be_said(tmp_path):
    save(MODELS["nanoGPT"][0], tmp_path)
    message = (
        'weights are stored as nn.Linear has them, .* "activation_function": "gelu_new" for minGPT, "gelu" for nano'
    )
    with pytest.raises(ValueError, match=message):
        GPT.from_pretrained(tmp_path)


def test_a_head_of_its_own_must_be_said(tmp_path):
    save(MODELS["minGPT"][0], tmp_path, activation_function="gelu_new")
    with pytest.raises(ValueError, match=r"differ, but config.json says .* set tie_word_embeddings to false there"):
        GPT.from_pretrained(tmp_path)


def test_a_weight_that_is_turned_the_other_way_is_named(tmp_path):
    theirs = Theirs(True, "none")
    weight = theirs.transformer.h[1].mlp.c_fc.weight
    weight.data = weight.data.T.contiguous()
    save(theirs, tmp_path, activation_function="gelu")
    message = re.escape("transformer.h.1.mlp.c_fc.weight is (20, 80); config.json needs (80, 20). Nothing was loaded.")
    with pytest.raises(ValueError, match=message):
        GPT.from_pretrained(tmp_path)


def test_the_two_layouts_are_told_apart_by_the_joined_projection(tmp_path):
    theirs = Theirs(True, "none")
    for layer in theirs.transformer.h:  # as transformers stores them
        for linear in (layer.attn.c_attn, layer.attn.c_proj, *layer.mlp.values()):
            linear.weight.data = linear.weight.data.T.contiguous()
    save(theirs, tmp_path, activation_function="gelu")
    ours = GPT.from_pretrained(tmp_path)
    torch.testing.assert_close(ours.blocks[1].attention.out_proj.weight, theirs.transformer.h[1].attn.c_proj.weight.T)
