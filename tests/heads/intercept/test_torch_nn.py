"""torch.nn's own attention on all its paths, FlexAttention, and every shape that SDPA takes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from heads.models import assert_weights, calls, watched, weights_of
from regard.heads.intercept import torch_nn as intercept_torch_nn

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
    out, reports = watched(model, given, **masks)
    assert torch.equal(out, unwatched)
    assert fast == before == ["_transformer_encoder_layer_fwd"] * (2 if batch_first else 0)
    assert [call.origin.module for call in calls(reports)] == ["layers.0.self_attn", "layers.1.self_attn"]
    layer, call = model.layers[0], reports[0][2]
    assert_weights(call, by_hand(layer.self_attn, layer.norm1(x) if norm_first else x, hidden_by(masks)))
    real = torch.ones(B, T, dtype=torch.bool) if call.origin.real is None else call.origin.real
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
    out, reports = watched(model, given, **masks)
    assert torch.equal(out, unwatched)
    assert [call.origin.module for call in calls(reports)] == ["layers.0.self_attn", "layers.1.self_attn"]
    layer, call = model.layers[0], reports[0][2]
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
        out, reports = watched(model, given, given, given, **masks, **returned)
    assert fast == before == ["_native_multi_head_attention"] * (batch_first and not training)
    assert torch.equal(out[0], unwatched[0])
    assert (out[1] is None) == (unwatched[1] is None)
    assert out[1] is None or torch.equal(out[1], unwatched[1])
    (call,) = calls(reports)
    assert_weights(call, by_hand(model, x, hidden_by({"src_key_padding_mask": HIDDEN} if padded else {})))
    real = torch.ones(B, T, dtype=torch.bool) if call.origin.real is None else call.origin.real
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
    (out, _), reports = watched(model, x, y, y, average_attn_weights=False)
    assert torch.equal(out, unwatched)
    assert_weights(reports[0][2], weights)
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
    out, reports = watched(model, x, y, src_key_padding_mask=HIDDEN, **masks)
    assert torch.equal(out, unwatched)
    decoder = [f"decoder.layers.{i}.{name}" for i in (0, 1) for name in ("self_attn", "multihead_attn")]
    assert [call.origin.module for call in calls(reports)] == ["encoder.layers.0.self_attn", *decoder]
    assert [call.sizes[2:] for call in calls(reports)] == [(7, 7), (5, 5), (5, 7), (5, 5), (5, 7)]
    assert [call.origin.real.sum(-1).tolist() for call in calls(reports)] == [[7, 4], *([[5, 3]] * 4)]


@torch.no_grad()
def test_a_decoder_without_padding_does_not_borrow_its_encoders():
    model, x = nn.Transformer(E, H, 1, 1, 41, 0.0, batch_first=True).eval(), torch.randn(B, T, E)
    for given, expected in (("src", [True, False, False]), ("tgt", [False, True, True])):
        _, reports = watched(model, x, x, **{f"{given}_key_padding_mask": HIDDEN})
        assert [call.origin.real is not None for call in calls(reports)] == expected


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
    assert call.origin.module == "self_attn"
    assert_weights(call, by_hand(layer.self_attn, x))
