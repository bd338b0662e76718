"""torch.nn's own attention on all its paths, FlexAttention, and every shape that SDPA takes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from heads.models import assert_weights, calls, lse_of, watched, weights_of
from regard.attention.masks import CAUSAL, EVERYTHING
from regard.heads import intercept_torch_nn

pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
    pytest.mark.filterwarnings("ignore:Converting mask without torch.bool:UserWarning"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning"),
]
B, T, E, H = 2, 7, 24, 4
HIDDEN = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
FUTURE = torch.ones(T, T).triu(1).bool()
MASKS = {
    "none": {},
    "padding": {"src_key_padding_mask": HIDDEN},
    "causal": {"mask": FUTURE},
    "both": {"mask": FUTURE, "src_key_padding_mask": HIDDEN},
}


@pytest.fixture
def fast(monkeypatch):
    """Which operators of the fast path ran."""
    ran = []
    for name in intercept_torch_nn.OPERATORS:
        original = getattr(torch, name)
        monkeypatch.setattr(
            torch, name, lambda *a, name=name, original=original, **k: ran.append(name) or original(*a, **k)
        )
    return ran


def encoder(norm_first, batch_first, dropout=0.0):
    layer = nn.TransformerEncoderLayer(E, H, 41, dropout, batch_first=batch_first, norm_first=norm_first)
    return nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(E))


def by_hand(attention, x, hidden=None):
    """The weights of an nn.MultiheadAttention over x (B, T, E)."""
    q, k, _ = (
        t.unflatten(-1, (H, -1)).transpose(1, 2)
        for t in F.linear(x, attention.in_proj_weight, attention.in_proj_bias).chunk(3, -1)
    )
    scores = q.double() @ k.double().mT / q.shape[-1] ** 0.5
    return (scores if hidden is None else scores.masked_fill(hidden, -torch.inf)).softmax(-1)


def hidden_by(masks):
    hidden = torch.zeros(B, 1, T, T, dtype=torch.bool)
    if "mask" in masks:
        hidden = hidden | masks["mask"]
    if "src_key_padding_mask" in masks:
        hidden = hidden | masks["src_key_padding_mask"][:, None, None]
    return hidden


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [True, False])
@torch.no_grad()
def test_an_encoder_in_eval_keeps_its_path_and_shows_its_weights(masks, norm_first, batch_first, fast):
    model, masks, x = encoder(norm_first, batch_first).eval(), MASKS[masks], torch.randn(B, T, E)
    given = x if batch_first else x.transpose(0, 1)
    unwatched = model(given, **masks)
    before = fast.copy()
    fast.clear()
    out, told = watched(model, given, **masks)
    assert torch.equal(out, unwatched)
    assert fast == before == ["_transformer_encoder_layer_fwd"] * (2 if batch_first else 0)
    assert [call.module for call in calls(told)] == ["layers.0.self_attn", "layers.1.self_attn"]
    layer, call = model.layers[0], told[0][2]
    assert_weights(call, by_hand(layer.self_attn, layer.norm1(x) if norm_first else x, hidden_by(masks)))
    real = torch.ones(B, T, dtype=torch.bool) if call.real is None else call.real
    assert torch.equal(real, ~masks.get("src_key_padding_mask", torch.zeros(B, T, dtype=torch.bool)))


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [True, False])
def test_an_encoder_in_training_shows_its_weights(masks, norm_first, batch_first):
    model, masks, x = encoder(norm_first, batch_first, dropout=0.1).train(), MASKS[masks], torch.randn(B, T, E)
    given = x if batch_first else x.transpose(0, 1)
    torch.manual_seed(3)
    unwatched = model(given, **masks)
    torch.manual_seed(3)
    out, told = watched(model, given, **masks)
    assert torch.equal(out, unwatched)
    assert [call.module for call in calls(told)] == ["layers.0.self_attn", "layers.1.self_attn"]
    layer, call = model.layers[0], told[0][2]
    assert_weights(call, by_hand(layer.self_attn, layer.norm1(x) if norm_first else x, hidden_by(masks)))


@pytest.mark.parametrize("returned", [{}, {"average_attn_weights": False}, {"need_weights": False}], ids=str)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_multihead_attention_is_seen_on_all_its_paths(returned, padded, batch_first, training, fast):
    model, x = nn.MultiheadAttention(E, H, batch_first=batch_first).train(training), torch.randn(B, T, E)
    given = x if batch_first else x.transpose(0, 1)
    masks = {"key_padding_mask": HIDDEN} if padded else {}
    with torch.set_grad_enabled(training):
        unwatched = model(given, given, given, **masks, **returned)
        before = fast.copy()
        fast.clear()
        out, told = watched(model, given, given, given, **masks, **returned)
    assert fast == before == ["_native_multi_head_attention"] * (batch_first and not training)
    assert torch.equal(out[0], unwatched[0])
    assert (out[1] is None) == (unwatched[1] is None)
    assert out[1] is None or torch.equal(out[1], unwatched[1])
    (call,) = calls(told)
    assert_weights(call, by_hand(model, x, hidden_by({"src_key_padding_mask": HIDDEN} if padded else {})))
    real = torch.ones(B, T, dtype=torch.bool) if call.real is None else call.real
    assert torch.equal(real, ~HIDDEN if padded else torch.ones_like(HIDDEN))
    if out[1] is not None:
        shown = weights_of(call) if out[1].dim() == 4 else weights_of(call).mean(1)
        torch.testing.assert_close(shown, out[1].double(), rtol=0, atol=1e-6)


def test_queries_and_keys_of_different_texts_in_multihead_attention():
    model, x, y = (
        nn.MultiheadAttention(E, 3, kdim=5, vdim=5, batch_first=True),
        torch.randn(B, T, E),
        torch.randn(B, 11, 5),
    )
    unwatched, weights = model(x, y, y, average_attn_weights=False)
    (out, _), told = watched(model, x, y, y, average_attn_weights=False)
    assert torch.equal(out, unwatched)
    assert_weights(told[0][2], weights)
    assert_weights(watched(model, x, y, y, need_weights=False)[1][0][2], weights)


def test_a_whole_transformer_is_seen_in_order():
    model = nn.Transformer(E, H, 1, 2, 41, 0.0, batch_first=True).eval()
    x, y = torch.randn(B, T, E), torch.randn(B, 5, E)
    hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    masks = {
        "tgt_mask": torch.ones(5, 5).triu(1).bool(),
        "tgt_key_padding_mask": hidden,
        "memory_key_padding_mask": HIDDEN,
    }
    unwatched = model(x, y, src_key_padding_mask=HIDDEN, **masks)
    out, told = watched(model, x, y, src_key_padding_mask=HIDDEN, **masks)
    assert torch.equal(out, unwatched)
    decoder = [f"decoder.layers.{i}.{name}" for i in (0, 1) for name in ("self_attn", "multihead_attn")]
    assert [call.module for call in calls(told)] == ["encoder.layers.0.self_attn", *decoder]
    assert [call.sizes[2:] for call in calls(told)] == [(7, 7), (5, 5), (5, 7), (5, 5), (5, 7)]
    assert [call.real.sum(-1).tolist() for call in calls(told)] == [[7, 4], *([[5, 3]] * 4)]


@torch.no_grad()
def test_a_decoder_without_padding_does_not_borrow_its_encoders():
    model, x = nn.Transformer(E, H, 1, 1, 41, 0.0, batch_first=True).eval(), torch.randn(B, T, E)
    for given, expected in (("src", [True, False, False]), ("tgt", [False, True, True])):
        _, told = watched(model, x, x, **{f"{given}_key_padding_mask": HIDDEN})
        assert [call.real is not None for call in calls(told)] == expected


def test_an_own_attention_inside_an_encoder_layer_is_seen():
    class Own(nn.MultiheadAttention):
        def forward(self, query, key, value, **_):
            q, k, v = (
                t.unflatten(-1, (H, -1)).transpose(1, 2)
                for t in F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
            )
            return self.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)), None

    layer, x = nn.TransformerEncoderLayer(E, H, 41, 0.0, batch_first=True), torch.randn(B, T, E)
    layer.self_attn = Own(E, H, batch_first=True)
    (call,) = calls(watched(layer, x)[1])
    assert call.module == "self_attn"
    assert_weights(call, by_hand(layer.self_attn, x))


class Sdpa(nn.Module):
    def forward(self, q, k, **how):
        return F.scaled_dot_product_attention(q, k, k, **how)


def seen(q, k, **how):
    out, told = watched(Sdpa(), q, k, **how)
    assert torch.equal(out, F.scaled_dot_product_attention(q, k, k, **how))
    return told[0][2]


@pytest.mark.parametrize("T, S", [(7, 7), (5, 7), (7, 5), (1, 7)])
def test_the_causal_flag_starts_at_the_first_key(T, S):
    q, k = torch.randn(2, 3, T, 8), torch.randn(2, 3, S, 8)
    call = seen(q, k, is_causal=True)
    allowed = torch.ones(T, S).tril().bool()
    expected = (q @ k.mT / 8**0.5).masked_fill(~allowed, -torch.inf).softmax(-1)
    assert_weights(call, expected[..., : call.sizes[3]])
    assert call.sizes[3] == min(T, S)
    assert not expected[..., call.sizes[3] :].any()


@pytest.mark.parametrize(
    "shape", [(7, 5), (1, 7, 5), (3, 7, 5), (2, 1, 7, 5), (2, 3, 7, 5), (2, 1, 1, 5), (2, 3, 7, 1)]
)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_of_every_shape(shape, kind):
    q, k = torch.randn(2, 3, 7, 8), torch.randn(2, 3, 5, 8)
    mask = torch.rand(shape) > 0.3
    mask[..., 0] = True
    mask = mask if kind == "bool" else torch.randn(shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    bias = mask if kind == "float" else torch.zeros(shape).masked_fill(~mask, -torch.inf)
    assert_weights(seen(q, k, attn_mask=mask), (q @ k.mT / 8**0.5 + bias).softmax(-1))


def test_a_row_of_only_the_lowest_number_is_even_as_in_the_model():
    q, k = torch.randn(1, 1, 2, 8), torch.randn(1, 1, 3, 8)
    mask = torch.tensor([[0.0, 0.0, 0.0], [torch.finfo(torch.float32).min] * 3])
    torch.testing.assert_close(weights_of(seen(q, k, attn_mask=mask)).float()[0, 0, 1].sum(), torch.tensor(1.0))


def test_keys_shared_by_heads_stay_shared():
    q, k = torch.randn(2, 6, 7, 8), torch.randn(2, 3, 7, 8)
    call = seen(q, k, enable_gqa=True, scale=0.3)
    assert call.k.shape[1] == 3
    assert_weights(call, (0.3 * q @ k.repeat_interleave(2, 1).mT).softmax(-1))


@pytest.mark.parametrize(
    "q, k, shape",
    [
        ((7, 8), (5, 8), (1, 1, 7, 5)),
        ((2, 7, 8), (2, 5, 8), (2, 1, 7, 5)),
        ((1, 3, 7, 8), (2, 3, 5, 8), (2, 3, 7, 5)),
        ((2, 3, 7, 8), (2, 1, 5, 8), (2, 3, 7, 5)),
        ((2, 1, 7, 8), (2, 3, 5, 8), (2, 3, 7, 5)),
        ((2, 3, 4, 7, 8), (2, 3, 4, 5, 8), (6, 4, 7, 5)),
        ((2, 1, 4, 7, 8), (1, 3, 4, 5, 8), (6, 4, 7, 5)),
    ],
    ids=str,
)
def test_axes_are_brought_to_four(q, k, shape):
    q, k = torch.randn(q), torch.randn(k)
    call = seen(q, k)
    assert call.sizes == shape
    assert_weights(call, (q @ k.mT / 8**0.5).softmax(-1).reshape(shape))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("T", [1, 33, 65])
def test_the_lse_is_that_of_the_scores(T, causal):
    q, k = torch.randn(2, 3, T, 16), torch.randn(2, 3, 65, 16)
    call = seen(q, k, is_causal=causal)
    assert call.mask is (CAUSAL if causal else EVERYTHING)
    torch.testing.assert_close(call.lse.double(), lse_of(call), rtol=0, atol=1e-5)


def test_there_is_no_lse_where_a_row_may_see_nothing():
    q = torch.randn(2, 3, 7, 16)
    mask = torch.ones(7, 7, dtype=torch.bool)
    mask[3] = False
    assert seen(q, q, attn_mask=torch.ones(7, 7, dtype=torch.bool)).lse is None
    assert watched(Sdpa(), q, q, attn_mask=mask)[1][0][2].lse is None


def test_a_key_that_nobody_sees_is_padding():
    q = torch.randn(2, 3, 7, 16)
    call = seen(q, q, attn_mask=~(HIDDEN[:, None, None] | FUTURE))
    assert torch.equal(call.real, ~HIDDEN)
    assert torch.equal(seen(q, q, attn_mask=~HIDDEN[:, None, None]).real, ~HIDDEN)


def test_the_masks_of_torch_nn_attention_bias():
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    q, k = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 7, 8)
    for made, shift in ((causal_upper_left, 0), (causal_lower_right, 2)):
        (call,) = calls(watched(Sdpa(), q, k, attn_mask=made(5, 7))[1])
        allowed = torch.ones(5, 7).tril(shift).bool()
        expected = (q @ k.mT / 8**0.5).masked_fill(~allowed, -torch.inf).softmax(-1)
        assert_weights(call, expected[..., : call.sizes[3]])


def test_autocast_is_part_of_what_the_model_computes():
    q = torch.randn(2, 3, 7, 16)
    with torch.autocast("cpu", torch.bfloat16):
        call = seen(q, q)
    assert call.q.dtype is torch.bfloat16
    assert_weights(call, (q.bfloat16().double() @ q.bfloat16().double().mT / 4).softmax(-1))


@torch.no_grad()
def test_texts_of_different_lengths_without_padding():
    texts = [torch.randn(n, 3, 16) for n in (7, 4)]
    q = torch.nested.nested_tensor(texts, layout=torch.jagged).transpose(1, 2)
    (call,) = calls(watched(Sdpa(), q, q)[1])
    expected = torch.zeros(2, 3, 7, 7)
    for b, text in enumerate(t.transpose(0, 1) for t in texts):
        n = text.shape[1]
        expected[b, :, :n, :n] = (text @ text.mT / 4).softmax(-1)
    assert_weights(call, expected)
    assert call.real.sum(-1).tolist() == [7, 4]


def test_what_cannot_be_followed_is_named_with_its_module():
    class Strange(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is F.scaled_dot_product_attention:
                return args[0]
            raise TypeError("a mask like no other")

    model, q = nn.ModuleDict({"odd": Sdpa()}), torch.randn(2, 3, 7, 16)
    model.forward = lambda q: model["odd"](q, q, attn_mask=torch.ones(7, 7).as_subclass(Strange))
    with pytest.raises(ValueError, match="cannot follow the attention in odd: a mask like no other"):
        watched(model, q)


def test_the_operator_itself_is_seen():
    class Exported(nn.Module):
        def forward(self, q):
            return torch.ops.aten.scaled_dot_product_attention.default(q, q, q, is_causal=True)

    q = torch.randn(2, 3, 7, 16)
    (call,) = calls(watched(Exported(), q)[1])
    assert_weights(call, (q @ q.mT / 4).masked_fill(FUTURE, -torch.inf).softmax(-1))
