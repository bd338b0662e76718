"""What a head writes, as the report gives it: the sum, the length, the products, and what is said otherwise."""

import pytest
import torch
from torch import nn

import regard
from regard.heads.report.written import LowRank

B, T = 2, 11
IDS = torch.randint(0, 4096, (B, T), generator=torch.Generator().manual_seed(1))


def tiny():
    return regard.GPT.from_pretrained("tiny")


def watched(model, *args, **options):
    with torch.no_grad(), regard.watch(model, **{"values": True, **options}) as seen:
        model(*args)
    return seen


def test_heads_of_our_model_write_what_the_definition_says():
    model = tiny().double()
    seen, layer = watched(model, IDS), model.blocks[3].attention
    D = layer.head_dim
    context = seen[3, 5].context
    written = context @ layer.out_proj.weight[:, 5 * D : 6 * D].T
    torch.testing.assert_close(seen[3, 5].written(), written)
    torch.testing.assert_close(seen[3].written()[:, 5], written)
    torch.testing.assert_close(seen[3, 5].written_norm, written.norm(dim=-1))
    rows = slice(5 * D, 6 * D)
    torch.testing.assert_close(seen[3, 5].qk.matrix(), layer.W_query.weight[rows].T @ layer.W_key.weight[rows])
    ov = layer.W_value.weight[rows].T @ layer.out_proj.weight[:, rows].T
    torch.testing.assert_close(seen[3, 5].ov.matrix(), ov)
    torch.testing.assert_close(seen[3, 5].ov.norm(), ov.norm())


def test_direct_effects_of_all_parts_of_the_stream_add_up_to_the_logit():
    model = tiny().double()
    parts = {}
    hooks = [
        block.feed_forward.register_forward_hook(lambda m, a, out: parts.update({m: out})) for block in model.blocks
    ]
    seen = watched(model, IDS)
    for hook in hooks:
        hook.remove()
    with torch.no_grad():
        embedded = model.token_embedding(IDS)
        if model.position_embedding is not None:
            embedded = embedded + model.position_embedding.weight[:T]
        biases = sum(
            block.attention.out_proj.bias for block in model.blocks if block.attention.out_proj.bias is not None
        )
        others = embedded + sum(parts.values()) + biases
        stream = others + sum(layer.written().sum(1) for layer in seen)
        norm, row = model.final_norm, model.head_weight[7]
        logit = model(IDS)[..., 7]
        scale = (stream.var(-1, correction=0, keepdim=True) + norm.eps).rsqrt()
        rest = (others - others.mean(-1, keepdim=True)) * scale * norm.weight + norm.bias
        direct = sum(layer.logits(7).sum(1) for layer in seen)
    torch.testing.assert_close(direct + rest @ row, logit)


class TokensFirst(nn.Module):
    """A model of one layer whose tensors are (T, B, E), and its logits (T, B, V)."""

    def __init__(self):
        super().__init__()
        self.embed, self.unembed = nn.Embedding(23, 12), nn.Linear(12, 23)
        self.attention = nn.MultiheadAttention(12, 3)

    def forward(self, x):
        x = self.embed(x)
        return self.unembed(x + self.attention(x, x, x, need_weights=False)[0])


@pytest.mark.parametrize(("texts", "tokens"), [(2, 5), (5, 5), (3, 1), (1, 7)])
def test_logits_are_by_text_and_token_where_the_model_has_its_tokens_first(texts, tokens):
    model = TokensFirst()
    seen = watched(model, torch.randint(0, 23, (tokens, texts)))
    ids = torch.randint(0, 23, (texts, tokens))
    expected = seen[0].written() @ model.unembed.weight.T
    torch.testing.assert_close(seen[0].logits(list(range(23))), expected)
    torch.testing.assert_close(seen[0].logits(7), expected[..., 7])
    of_each = expected.gather(-1, ids[:, None, :, None].expand(-1, 3, -1, 1))[..., 0]
    torch.testing.assert_close(seen[0].logits(ids), of_each)


def test_steps_of_a_generation_are_written_together_and_have_no_logits():
    model = tiny()
    cache = model.cache(B)
    with torch.no_grad(), regard.watch(model, values=True) as seen:
        model(IDS[:, :7], cache=cache)
        model(IDS[:, 7:], cache=cache)
    torch.testing.assert_close(seen[2, 1].written(), watched(model, IDS)[2, 1].written())
    with pytest.raises(
        ValueError, match=r"has several steps of a generation; logits\(\) needs a report of one forward"
    ):
        seen[2, 1].logits(5)


def test_without_values_what_is_missing_is_said():
    with pytest.raises(ValueError, match=r"what heads hand over was not kept; watch with values=True"):
        watched(tiny(), IDS, values=False)[2, 1].written()


def test_weights_that_a_training_step_changed_are_not_read():
    model = tiny()
    seen = watched(model, IDS)
    with torch.no_grad():
        model.blocks[2].attention.out_proj.weight.mul_(2)
    with pytest.raises(ValueError, match=r"the model's weights were changed since it was watched"):
        seen[2, 1].written()


def test_a_cut_head_writes_nothing():
    model = tiny()
    with torch.no_grad(), regard.watch(model, values=True) as seen, regard.cut(model, (2, 1)):
        model(IDS)
    assert not seen[2, 1].written().any()
    assert seen[2, 0].written().any()


def test_low_rank_products_are_those_of_the_matrices():
    one, two = LowRank(torch.randn(7, 3), torch.randn(3, 5)), LowRank(torch.randn(5, 2), torch.randn(2, 11))
    torch.testing.assert_close(one.then(two).matrix(), one.matrix() @ two.matrix())
    torch.testing.assert_close(one.transposed().matrix(), one.matrix().T)
    torch.testing.assert_close(one.norm(), one.matrix().norm())
