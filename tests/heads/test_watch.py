"""regard.watch as people use it: real models, real statistics, all in one go."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import regard
from heads import dense, models
from heads.made_calls import made_call
from heads.models import ids
from helpers import says_it_ourselves

LEFT = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [1] * 7])
RIGHT = torch.tensor([[1] * 7, [1, 1, 1, 1, 0, 0, 0]])
ROWS = ("entropy", "largest", "distance", "sink", "previous", "self", "induction", "duplicate", "received")


def seen_of(model, *args, collect=None, keep=None, **kwargs):
    with regard.watch(model, collect=collect, keep=keep) as seen:
        model(*args, **kwargs)
    return seen


@pytest.mark.parametrize("written_out", [False, True])
@pytest.mark.parametrize("name, padding", [("gpt2", LEFT), ("llama", LEFT), ("bert", RIGHT)])
def test_a_training_step_with_padding_and_dropout_is_the_same_watched(name, padding, written_out):
    model = getattr(models, name)().train()
    model.set_attn_implementation("eager" if written_out else "sdpa")
    tokens = ids()
    runs = []
    for watched in (False, True):
        model.zero_grad()
        torch.manual_seed(3)
        if watched:
            with regard.watch(model) as seen:
                out = model(input_ids=tokens, attention_mask=padding)[0]
        else:
            out = model(input_ids=tokens, attention_mask=padding)[0]
        out.square().sum().backward()
        runs.append([out, *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    for unwatched, found in zip(*runs, strict=True):
        assert torch.equal(unwatched, found)
    assert not seen[0].entropy.requires_grad
    assert_close(seen[0].weights().sum(-1), padding[:, None].expand(-1, seen[0].weights().shape[1], -1).float())


def test_weights_that_a_model_hands_out_stay_as_it_made_them():
    model = models.bert()
    model.set_attn_implementation("eager")
    given = {"input_ids": ids(), "attention_mask": RIGHT}
    with torch.no_grad():
        expected = model(**given, output_attentions=True).attentions
        with regard.watch(model):
            found = model(**given, output_attentions=True).attentions
    for one, other in zip(expected, found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
@torch.no_grad()
def test_every_statistic_of_a_real_model_is_its_definition_in_every_precision(name, dtype):
    model, tokens = getattr(models, name)().to(dtype), torch.tensor([[5, 7, 9, 5, 7, 9, 3], [4, 4, 8, 4, 6, 8, 4]])
    unwatched = model(input_ids=tokens, attention_mask=LEFT)[0]
    with regard.watch(model) as seen:
        assert torch.equal(model(input_ids=tokens, attention_mask=LEFT)[0], unwatched)
    for layer in range(len(seen)):
        call = seen[layer].record.call(0)
        expected = dense.measure(call, ROWS)
        for statistic in ROWS:
            found = getattr(seen[layer], statistic)
            assert found.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
            close = {"rtol": 1e-9, "atol": 1e-9} if dtype is torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
            assert_close(found.double(), expected[statistic], **close, equal_nan=True)


@torch.no_grad()
def test_a_generation_is_what_one_forward_over_its_text_is():
    model, prompt = models.gpt2(), ids()
    with regard.watch(model) as steps:
        text = model.generate(prompt, attention_mask=LEFT, max_new_tokens=5, min_new_tokens=5, do_sample=False)[:, :-1]
    mask = torch.cat([LEFT, torch.ones(2, 4, dtype=torch.long)], 1)
    whole = seen_of(model, input_ids=text, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(min=0))
    for layer in range(2):
        for name in ROWS:
            assert_close(getattr(steps[layer], name), getattr(whole[layer], name), rtol=1e-4, atol=1e-5, equal_nan=True)
        assert_close(steps[layer].weights(), whole[layer].weights(), rtol=1e-4, atol=1e-6)


def across(model, **inputs):
    """{layer: is it known to be cross-attention?}"""
    seen = seen_of(model, **inputs)
    return {name: bool(seen[name].distance.isnan().all()) for name in seen.layers}, seen


@pytest.mark.parametrize("T", [5, 7])
@pytest.mark.parametrize("name", ["bart", "t5"])
@torch.no_grad()
def test_cross_attention_has_no_distance_and_no_role_that_needs_one(name, T):
    known, seen = across(getattr(models, name)(), input_ids=ids(), attention_mask=RIGHT, decoder_input_ids=ids(2, T))
    assert known == {layer: "encoder_attn" in layer or "EncDec" in layer for layer in known}
    for layer in (name for name, crosses in known.items() if crosses):
        for statistic in ("distance", "previous", "self"):
            assert getattr(seen[layer], statistic).isnan().all()
        assert seen[layer].histogram.isnan().all()
        assert not seen[layer].sink.isnan().any()
        assert {role.name for role in seen[layer].roles} <= {"first token", "position", "broad", "mixed"}


@pytest.mark.parametrize("S", [5, 7])
def test_cross_attention_of_torch_and_of_regard_is_told_by_what_was_given(S):
    x, other = torch.randn(2, 7, 24), torch.randn(2, S, 24)
    ours = regard.MultiHeadAttention(24, 24, 16, dropout=0.0, num_heads=3, causal=False)
    assert seen_of(ours, x, other)[0].self.isnan().all()
    assert seen_of(ours, x, source=other)[0].self.isnan().all()
    assert not seen_of(ours, x)[0].self.isnan().any()
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(24, 4, 29, batch_first=True), 2)
    seen = seen_of(decoder, x, other)
    assert [bool(layer.self.isnan().all()) for layer in seen] == [False, True, False, True]
    theirs = nn.MultiheadAttention(24, 3, batch_first=True)
    assert not seen_of(theirs, x, x, x)[0].self.isnan().any()


def test_a_head_of_cross_attention_that_rests_on_the_last_key_is_not_called_self(tmp_path):
    class Reader(nn.Module):
        def forward(self, x, context):
            scores = 30.0 * torch.eye(context.shape[-2])[-1]
            return nn.functional.scaled_dot_product_attention(x, context, context, attn_mask=scores.expand(7, 5))

    model = Reader()
    seen = seen_of(model, torch.randn(2, 1, 7, 11), context=torch.randn(2, 1, 5, 11))
    assert seen[0, 0].role.name == "position"
    assert "weight on token 4 " in seen[0, 0].role.evidence
    seen.save(tmp_path / "seen.safetensors", keep=False)
    assert regard.load_seen(tmp_path / "seen.safetensors")[0, 0].role == seen[0, 0].role


def test_the_entropy_of_a_row_that_sees_one_key_is_plainly_zero():
    first = seen_of(models.gpt2(), input_ids=ids())[0].entropy[..., 0]
    assert_close(first, torch.zeros(2, 3), rtol=0, atol=1e-7)
    assert not torch.signbit(first).any()


def test_layers_and_heads_can_be_walked_through():
    seen = seen_of(models.gpt2(), input_ids=ids())
    assert [layer.name for layer in seen] == seen.layers
    assert [head.name for head in seen[1]] == [f"transformer.h.1.attn[{i}]" for i in range(3)]


@says_it_ourselves
@pytest.mark.parametrize(
    ("rows", "places"),
    [
        ([True, False, True, False, False, False, True], [0, 2, 6]),
        (np.array([True, False, True, False, False, False, True]), [0, 2, 6]),
        (np.arange(3), [0, 1, 2]),
        (np.int64(-1), [6]),
        (torch.tensor(2), [2]),
        (range(6, 3, -1), [6, 5, 4]),
        ((), []),
    ],
    ids=repr,
)
def test_rows_are_chosen_in_any_form_that_numbers_come_in(rows, places):
    head = seen_of(models.gpt2(), input_ids=ids())[1, 2]
    assert_close(head.weights(rows), head.weights()[:, places])
    assert_close(head.weights(cols=rows), head.weights()[:, :, places])


def test_a_summary_is_json_where_no_token_is_repeated():
    seen = seen_of(models.gpt2(), input_ids=torch.arange(3, 17).view(2, 7))
    summary = json.loads(json.dumps(seen.summary(), allow_nan=False))
    assert summary["layers"][0]["heads"][0]["induction"] is None
    assert "induction" not in seen.table().splitlines()[2]
    assert "nan" not in repr(seen[0, 0])


def test_pandas_has_a_row_a_head_and_the_means():
    pytest.importorskip("pandas")
    seen = seen_of(models.gpt2(), input_ids=ids())
    frame = seen.to_pandas()
    assert frame[["layer", "head"]].values.tolist() == [[i, h] for i in range(2) for h in range(3)]
    assert frame["module"].unique().tolist() == seen.layers
    assert frame["entropy"].tolist() == pytest.approx([head.summary["entropy"] for layer in seen for head in layer])


def test_the_usual_statistics_can_be_had_with_more():
    seen = seen_of(models.gpt2(), input_ids=ids(), collect=("default", "received_mean"), keep=False)
    assert seen[0].entropy.shape == (2, 3, 7)
    causal = torch.arange(7, 0, -1)
    assert_close(seen[0].received_mean, seen[0].received / causal)


@says_it_ourselves
@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda s: s[0, 1, 2], r"seen\[layer\] is a layer and seen\[layer, head\] a head; this has 3 numbers"),
        (lambda s: s[0].received_mean, r'watch with collect=\("default", "received_mean"\)'),
        (lambda s: s.rollout(0, layers=[]), r"a rollout needs at least one layer; 2 were seen and 0 chosen"),
        (lambda s: s[0, 0].weights([True] * 3), r"a choice of rows by True and False needs 7 of them; this has 3"),
        (lambda s: s[0, 0].weights("last"), r"'last' cannot be looked up: no tokenizer is known; give it to the watch"),
    ],
)
def test_what_was_not_seen_says_how_to_see_it(ask, message):
    seen = seen_of(models.gpt2(), input_ids=ids())
    with pytest.raises(ValueError, match=message):
        ask(seen)


@says_it_ourselves
def test_what_is_no_module_is_refused_with_what_to_watch():
    class Pipeline:
        model = nn.Linear(2, 3)

    with pytest.raises(ValueError, match=r"takes a torch\.nn\.Module and this is a str; load the model first"):
        regard.watch("gpt2").__enter__()
    with pytest.raises(ValueError, match=r"takes a torch\.nn\.Module and this is a Pipeline; watch its \.model"):
        regard.watch(Pipeline()).__enter__()


def test_a_comparison_shows_signs_and_says_when_nothing_changed():
    model = models.gpt2()
    one, two = (seen_of(model, input_ids=torch.full((1, 7), token)) for token in (3, 4))
    assert str(one.compare(one).changed()) == "  none of 6 heads changed"
    lines = one.compare(two).table(width=120).splitlines()
    assert lines[2].split() == ["head", "role", "most", "change", "entropy", "distance", "first", "previous", "self"]
    assert {len(line) for line in lines[2 : lines.index("", 2)]} == {len(lines[2])}  # all end where their heading ends


def test_many_sinks_do_not_hide_the_heads_that_are_rare():
    sink = dense.pattern(lambda i: 0, 17, weight=0.95)
    before = dense.pattern(lambda i: max(i - 1, 0), 17, weight=0.7)
    seen = regard.Seen()
    seen.add(0, 0, made_call("h", weights=torch.cat([*[sink] * 29, before], 1)))
    lines = seen.table().splitlines()
    assert lines[3].split()[:3] == ["0.29", "previous", "token"]
    at = lines.index("  All of them: seen.table(all=True)")
    assert lines[at - 1] == "  … and 6 more: 6 first token"


def test_a_heading_leaves_names_out_where_there_is_no_room_for_them():
    seen = seen_of(models.gpt2(), input_ids=ids(1, 1))
    assert seen.table(80).splitlines()[0] == "  2 layers × 3 heads · 1 token · transformer.h.0–1.attn"
    assert seen.table(40).splitlines()[0] == "  2 layers × 3 heads · 1 token"


class Attend(nn.Module):
    def forward(self, x, mask=None):
        return nn.functional.scaled_dot_product_attention(x, x, x, mask)


@pytest.mark.parametrize("form", [torch.bool, torch.float32], ids=str)
def test_a_mask_that_is_changed_afterwards_changes_nothing_seen(form):
    seen_by = torch.ones(6, 6, dtype=torch.bool).tril()
    mask = seen_by.clone() if form is torch.bool else torch.zeros(6, 6).masked_fill(~seen_by, -torch.inf)
    x = torch.randn(1, 2, 6, 8)
    right = ((x @ x.mT) * 8**-0.5).masked_fill(~seen_by, -torch.inf).softmax(-1)
    seen = seen_of(Attend(), x, mask)
    mask.fill_(1)
    assert_close(seen[0].weights(), right)
    assert_close(seen[0, 1].map(6), right[:, 1])
    keys, weights = seen[0, 0].top(6)
    assert_close(torch.zeros(1, 6, 6).scatter_add_(-1, keys.clamp(min=0), weights), right[:, 0])


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_a_tensor_in_flex_attentions_rule_is_the_watchers_own():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    lengths, none, q = torch.tensor([5, 9]), torch.tensor(0), torch.randn(2, 2, 9, 16)

    def real(b, h, i, j):
        return j < lengths[b]

    def causal(b, h, i, j, shift=none):
        return j <= i + shift

    def both(b, h, i, j, rules=(real, causal), *, turn=torch.tensor(True)):  # noqa: B008
        assert both is not None  # a rule may know itself
        return turn & rules[0](b, h, i, j) & rules[1](b, h, i, j)

    class Flex(nn.Module):
        def forward(self, x):
            return flex_attention(x, x, x, block_mask=create_block_mask(both, 2, None, 9, 9, device="cpu"))

    seen = seen_of(Flex(), q)
    right = seen[0].weights()
    lengths.fill_(1)
    none.fill_(9)
    both.__kwdefaults__["turn"].fill_(False)
    assert_close(seen[0].weights(), right)
    assert_close(right[1].sum(-1), torch.ones(2, 9))


def test_single_queries_of_different_texts_are_forwards_of_their_own():
    layer = nn.MultiheadAttention(16, 4, batch_first=True)
    for keep, count in ((None, 3), (True, 3)):
        with regard.watch(layer, keep=keep) as seen:
            for _ in range(3):
                layer(torch.randn(2, 1, 16), *[torch.randn(2, 9, 16)] * 2, need_weights=False)
        assert len(seen.forwards) == count
    memory = torch.randn(2, 9, 16)
    with regard.watch(layer) as seen:  # one text, asked again and again
        for _ in range(3):
            layer(torch.randn(2, 1, 16), memory, memory, need_weights=False)
    assert len(seen.forwards) == 1
    assert seen[0].entropy.shape == (2, 4, 3)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("keep", [None, False])
def test_an_empty_text_is_watched_as_nothing_and_the_report_says_so(keep, training, tmp_path):
    layer, x = nn.MultiheadAttention(16, 4, batch_first=True).train(training), torch.randn(2, 0, 16)
    seen = seen_of(layer, x, x, x, keep=keep)
    assert "1 layer × 4 heads · 2 × 0 tokens" in repr(seen)
    assert str(seen[0, 0].role) == "mixed: fewer than 4 tokens, or nothing collected to compute a role from"
    assert {head["entropy"] for head in seen.summary()["layers"][0]["heads"]} == {None}
    assert_close(seen[0].entropy, torch.zeros(2, 4, 0))
    assert_close(seen[0].received, torch.zeros(2, 4, 0))
    seen.save(tmp_path / "empty.safetensors")
    assert repr(regard.load_seen(tmp_path / "empty.safetensors")) == repr(seen)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("keep", [None, False])
@pytest.mark.parametrize("how", [("add_bias_kv",), ("add_zero_attn",), ("add_bias_kv", "add_zero_attn")], ids=len)
@pytest.mark.parametrize("hide", [{}, {"attn_mask": torch.ones(7, 7).triu(1).bool()}], ids=len)
def test_a_query_stands_at_its_own_key_where_others_were_put_after_them(hide, how, keep, need_weights, tmp_path):
    layer, x = nn.MultiheadAttention(12, 3, batch_first=True, **dict.fromkeys(how, True)).eval(), torch.randn(2, 7, 12)
    p = layer(x, x, x, average_attn_weights=False, **hide)[1].detach()
    far = (torch.arange(7)[:, None] - torch.arange(7 + len(how))).abs()
    collect = ("default", "histogram")
    seen = seen_of(layer, x, x, x, collect=collect, keep=keep, need_weights=need_weights, **hide)
    seen.save(tmp_path / "seen.safetensors")
    for report in (seen, regard.load_seen(tmp_path / "seen.safetensors")):
        assert_close(report[0].self, p.diagonal(dim1=-2, dim2=-1))
        assert_close(report[0].previous[..., 1:], p[..., 1:, :].diagonal(dim1=-2, dim2=-1))
        assert report[0].previous[..., 0].isnan().all()
        assert_close(report[0].distance, (p * far).sum(-1))
        assert_close(report[0].histogram[..., 0], p.diagonal(dim1=-2, dim2=-1))
        assert str(report[0, 0].role) == str(seen[0, 0].role)
        if keep is None:
            assert_close(report[0].weights(), p)


def test_an_even_look_over_keys_put_after_the_text_is_counted_from_where_the_query_stands():
    layer, x = nn.MultiheadAttention(12, 3, batch_first=True, add_zero_attn=True).eval(), torch.randn(2, 7, 12)
    expected = (torch.arange(7)[:, None] - torch.arange(8)).abs().float().mean(-1).expand(2, 3, 7)
    for need_weights in (True, False):
        (record,) = seen_of(layer, x, x, x, need_weights=need_weights)._records()[0]
        visible, distance = record.visible()
        assert_close(visible, torch.full((2, 3, 7), 8.0))
        assert_close(distance, expected)


def test_padding_is_of_the_text_and_not_of_the_keys_put_after_it():
    layer, x = nn.MultiheadAttention(12, 3, batch_first=True, add_bias_kv=True).eval(), torch.randn(2, 7, 12)
    with regard.watch(layer, padding=RIGHT) as seen:
        layer(x, x, x, key_padding_mask=RIGHT == 0)
    assert torch.equal(seen[0].entropy.isnan(), (RIGHT == 0)[:, None].expand(2, 3, 7))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_weights_of_half_precision_are_exact_where_torchs_own_sum_is_not(dtype):
    x = torch.randn(1, 2, 257, 64).to(dtype)
    scores = (x.double() @ x.double().mT) / 8
    right = scores.masked_fill(torch.ones(257, 257, dtype=torch.bool).triu(1), -torch.inf).softmax(-1)
    layer = nn.Identity()
    layer.forward = lambda x: nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    seen = seen_of(layer, x)
    assert_close(seen[0].weights(), right.float(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["sdpa", "eager"])
def test_what_heads_hand_over_is_kept_on_request(kind):
    model, x = models.llama(), models.ids()
    model.set_attn_implementation(kind)
    with regard.watch(model, values=True) as seen:
        before = model.model(x)[0]
    values = model.model.layers[0].self_attn.v_proj(model.model.layers[0].input_layernorm(model.model.embed_tokens(x)))
    values = values.unflatten(-1, (2, 8)).transpose(1, 2).repeat_interleave(2, 1)
    torch.testing.assert_close(seen[0].context, seen[0].weights() @ values)
    assert torch.equal(seen[0, 3].context, seen[0].context[:, 3])
    assert torch.equal(model.model(x)[0], before)
    with regard.watch(model) as plain:
        model(x)
    with pytest.raises(ValueError, match=r"what heads hand over was not kept; watch with values=True"):
        plain[0].context  # noqa: B018
