"""The linear maps around heads are found in any model, and the way to the logits is that of the definition."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard
from regard.heads.intercept import linear_paths

B, T, V = 2, 7, 31
IDS = torch.randint(3, V, (B, T), generator=torch.Generator().manual_seed(5))
NORMS = {"rms": lambda t, x, eps: t * (x.square().mean(-1, keepdim=True) + eps).rsqrt()}
NORMS["layer"] = lambda t, x, eps: (
    (t - t.mean(-1, keepdim=True)) * (x.var(-1, correction=0, keepdim=True) + eps).rsqrt()
)


def shaken(model):
    """In float64, with all weights random: norms and biases, too."""
    torch.manual_seed(7)
    for parameter in model.double().parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def model_of(name, implementation="sdpa", **options):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 29}
    ends = {"vocab_size": V, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = transformers.CONFIG_MAPPING[name](**{**sizes, **ends, **options})
    return shaken(transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation))


def hooked(model, *modules):
    """The inputs and the outputs of these modules in one forward."""
    found = {}
    hooks = [
        module.register_forward_hook(lambda one, args, out: found.update({id(one): (args[0], out)}))
        for module in modules
    ]
    with torch.no_grad():
        model(IDS, use_cache=False)
    for hook in hooks:
        hook.remove()
    return [found[id(module)] for module in modules]


def watched(model, *args, **kwargs):
    with torch.no_grad(), regard.watch(model, values=True) as seen:
        model(*args, **kwargs)
    return seen


LLAMAS = {
    "llama": {"num_key_value_heads": 2},
    "granite": {"num_key_value_heads": 2, "residual_multiplier": 0.3, "logits_scaling": 3.0},
    "olmo2": {"num_key_value_heads": 2},
    "mistral": {"num_key_value_heads": 2, "head_dim": 10},
}


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", LLAMAS)
def test_what_heads_write_in_models_like_llama(name, implementation):
    model = model_of(name, implementation, **LLAMAS[name])
    block, norm = model.model.layers[0], model.model.norm
    attention, D = block.self_attn, block.self_attn.head_dim
    seen = watched(model, IDS, use_cache=False)
    (_, projected), (stream, _) = hooked(model, attention.o_proj, norm)
    written = seen[0].written()
    torch.testing.assert_close(written.sum(1), projected)
    torch.testing.assert_close(seen[0].written_norm, written.norm(dim=-1))
    added = written
    if name == "olmo2":  # norms what its attention hands over before it is added
        after = block.post_attention_layernorm
        added = NORMS["rms"](written, projected[:, None], after.variance_epsilon) * after.weight
    added = added * getattr(block, "residual_multiplier", 1)
    direct = NORMS["rms"](added, stream[:, None], norm.variance_epsilon) * norm.weight @ model.lm_head.weight.T
    direct = direct / getattr(model.config, "logits_scaling", 1)
    torch.testing.assert_close(seen[0].logits([4, 9]), direct[..., [4, 9]])
    torch.testing.assert_close(seen[0, 3].logits(9), direct[:, 3, :, 9])
    torch.testing.assert_close(seen[0, 3].logits(IDS), direct[:, 3].gather(-1, IDS[..., None])[..., 0])
    W_q, W_k, W_v = (one.weight for one in (attention.q_proj, attention.k_proj, attention.v_proj))
    ov = W_v[D : 2 * D].T @ attention.o_proj.weight[:, 3 * D : 4 * D].T
    torch.testing.assert_close(seen[0, 3].ov.matrix(), ov)
    if name == "olmo2":
        with pytest.raises(
            ValueError, match=r"model\.layers\.0\.self_attn: the projection of its queries was not found"
        ):
            _ = seen[0, 3].qk
    else:
        torch.testing.assert_close(seen[0, 3].qk.matrix(), W_q[3 * D : 4 * D].T @ W_k[D : 2 * D])


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_what_heads_write_in_gpt2(implementation):
    model = model_of("gpt2", implementation, n_embd=24, n_head=4, n_layer=2, n_positions=32)
    attention, norm = model.transformer.h[0].attn, model.transformer.ln_f
    seen = watched(model, IDS, use_cache=False)
    (_, projected), (stream, _) = hooked(model, attention.c_proj, norm)
    written = seen[0].written()
    torch.testing.assert_close(written.sum(1) + attention.c_proj.bias, projected)
    direct = NORMS["layer"](written, stream[:, None], norm.eps) * norm.weight @ model.lm_head.weight.T
    torch.testing.assert_close(seen[0].logits(4), direct[..., 4])
    W_q, W_k, W_v = attention.c_attn.weight.split(24, 1)
    torch.testing.assert_close(seen[0, 1].qk.matrix(), W_q[:, 6:12] @ W_k[:, 6:12].T)
    torch.testing.assert_close(seen[0, 1].ov.matrix(), W_v[:, 6:12] @ attention.c_proj.weight[6:12])


class Block(nn.Module):
    """A hand-written layer; `change` makes something of the contexts, `norm` of what is added."""

    num_heads = 3

    def __init__(self, change=lambda self, c: c, rotate=lambda q: q):
        super().__init__()
        self.qkv, self.o = nn.Linear(15, 45), nn.Linear(15, 15)
        self.a, self.b, self.gate = nn.Linear(15, 2), nn.Linear(2, 15), nn.Linear(15, 15)
        self.gain, self.shift = nn.Parameter(torch.ones(15)), nn.Parameter(torch.zeros(15))
        self.head = nn.Linear(15, V, bias=False)
        self.change, self.rotate = change, rotate

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 3, 5).permute(2, 0, 3, 1, 4)
        context = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v).transpose(1, 2).flatten(2)
        x = x + self.change(self, context)
        centred = x - x.mean(-1, keepdim=True)
        x = centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * self.gain + self.shift
        return self.head(x)


def made(**options):
    return shaken(Block(**options))


X = torch.randn(B, T, 15, dtype=torch.float64, generator=torch.Generator().manual_seed(6))


def test_a_norm_that_is_written_out_is_followed():
    model = made(change=lambda self, c: self.o(c))
    seen = watched(model, X)
    written = seen[0].written()
    stream = X + written.sum(1) + model.o.bias
    direct = NORMS["layer"](written, stream[:, None], 1e-5) * model.gain @ model.head.weight.T
    torch.testing.assert_close(seen[0].logits(4), direct[..., 4])
    torch.testing.assert_close(seen[0, 2].qk.matrix(), model.qkv.weight[10:15].T @ model.qkv.weight[25:30])


CHANGED = {
    "gated": (lambda self, c: self.o(c * self.gate(c).sigmoid()), r"what comes out is not what the module hands on"),
    "gated by a part": (lambda self, c: self.o(c * self.a(c)[..., :1]), r"its output projection was not found"),
    "in two steps": (lambda self, c: self.o(c + self.gate(c)), r"its output projection was not found"),
    "with an adapter": (lambda self, c: self.o(c) + self.b(self.a(c)), r"its contexts go into 2 linear maps"),
    "not projected": (lambda self, c: c, r"its output projection was not found"),
    "scaled before": (lambda self, c: self.o(2 * c), r"its output projection was not found"),
    "another text's": (lambda self, c: self.o(c.roll(1, 0)), r"its output projection was not found"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_map_that_is_not_the_output_projection_is_not_taken_for_one(name):
    change, message = CHANGED[name]
    seen = watched(made(change=change), X)
    with pytest.raises(ValueError, match=message):
        seen[0, 1].written()


TOUCHED = {
    "squared": lambda self, c: self.o(c).square(),
    "through another map": lambda self, c: self.gate(self.o(c)),
    "written over": lambda self, c: self.o(c).clamp_(min=-9.0),
    "gated by itself": lambda self, c: self.o(c) * self.o(c),
}


@pytest.mark.parametrize("name", TOUCHED)
def test_a_way_to_the_logits_that_is_not_linear_is_said(name):
    seen = watched(made(change=TOUCHED[name]), X)
    with pytest.raises(ValueError, match=r"does not reach the model's logits by additions|go into 2 linear maps"):
        seen[0, 1].logits(4)


def test_queries_that_are_normed_have_no_product():
    seen = watched(made(change=lambda self, c: self.o(c), rotate=lambda q: q / q.norm(dim=-1, keepdim=True)), X)
    with pytest.raises(ValueError, match=r"the model itself: the projection of its queries was not found"):
        _ = seen[0, 1].qk
    assert seen[0, 1].ov.matrix().shape == (15, 15)


@pytest.mark.parametrize("first", [True, False])
def test_torch_nn_writes_what_its_output_projection_gives(first):
    model = shaken(nn.MultiheadAttention(12, 3, batch_first=first))
    x = torch.randn(5, 7, 12, dtype=torch.float64)
    with torch.no_grad(), regard.watch(model, values=True) as seen:
        out, _ = model(x, x, x, need_weights=False)
    written = seen[0].written().sum(1) + model.out_proj.bias
    torch.testing.assert_close(written if first else written.transpose(0, 1), out)
    rows = model.in_proj_weight
    torch.testing.assert_close(seen[0, 2].qk.matrix(), rows[8:12].T @ rows[20:24])
    torch.testing.assert_close(seen[0, 2].ov.matrix(), rows[32:36].T @ model.out_proj.weight[:, 8:12].T)


def test_values_change_nothing_in_the_model():
    model = regard.GPT.from_pretrained("tiny")
    ids = torch.randint(0, 4096, (2, 11))
    plain = model(ids)
    plain.sum().backward()
    before = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with regard.watch(model, values=True):
        out = model(ids)
    out.sum().backward()
    assert torch.equal(out, plain)
    assert all(torch.equal(p.grad, one) for p, one in zip(model.parameters(), before, strict=True))


def test_an_error_of_ours_leaves_the_forward_alone(monkeypatch):
    def broken(*_):
        raise RuntimeError("no such memory")

    monkeypatch.setattr(linear_paths, "find_features", broken)
    model = made(change=lambda self, c: self.o(c))
    with torch.no_grad(), regard.watch(model, values=True) as seen:
        out = model(X)
    assert torch.equal(out, model(X))
    with pytest.raises(ValueError, match=r"its output projection was not found"):
        seen[0].written()


class Ending(nn.Module):
    """An attention, and what a model may do with its output before and after the unembedding."""

    def __init__(self, end):
        super().__init__()
        torch.manual_seed(5)
        self.embed, self.end = nn.Embedding(30, 16), end
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.head, self.aux = nn.Linear(16, 30), nn.Linear(16, 30)

    def forward(self, ids):
        x = self.embed(ids)
        return self.end(self, x + self.attention(x, x, x, need_weights=False)[0])


def direct(end, mode=torch.no_grad):
    model = Ending(end).eval()
    with mode(), regard.watch(model, values=True) as seen:
        model(torch.arange(6)[None])
    return model, seen[0, 1]


@pytest.mark.parametrize("cast", [lambda t, x: t.type_as(x), lambda t, x: t.to(x), lambda t, x: t.to(x.dtype)])
def test_a_cast_to_the_same_type_keeps_what_came_before(cast):
    model, head = direct(lambda model, x: model.head(cast(x * 3.0, x)))
    torch.testing.assert_close(head.logits(7), 3 * head.written() @ model.head.weight[7])


def test_of_two_outputs_the_first_are_the_logits():
    model, head = direct(lambda model, x: {"logits": model.head(x), "aux": model.aux(x)})
    torch.testing.assert_close(head.logits(7), head.written() @ model.head.weight[7])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_what_is_written_over_leads_nowhere(mode):
    for write in (lambda x: x.relu_(), lambda x: x.tanh_(), lambda x: x.__setitem__((slice(None), 0), 0.0)):
        _, head = direct(lambda model, x, write=write: (write(x), model.head(x))[1], mode)
        with pytest.raises(ValueError, match="attention: "):
            head.logits(7)
