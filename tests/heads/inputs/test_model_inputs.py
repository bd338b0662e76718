"""Token ids and padding of each attention call, from the arguments of the model and of its modules."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import regard
from heads import models
from heads.made_calls import made_call
from heads.models import assert_weights, calls, eager, ids, random_x, textbook, watched
from regard.attention.masks import Padding
from regard.heads.inputs.model_inputs import InputTracker

pytestmark = pytest.mark.usefixtures("unchanged")
LEFT = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1]])
RIGHT = LEFT.flip(1)


def test_tokens_and_padding_of_the_user_come_first():
    model, x = models.gpt2(), ids()
    embedded = model.transformer.wte(x)
    keep = torch.tensor([[True] * 7, [False] * 2 + [True] * 5])
    _, reports = watched(model, inputs_embeds=embedded)
    assert all((call.origin.tokens, call.origin.real) == (None, None) for call in calls(reports))
    _, reports = watched(model, inputs_embeds=embedded, tokens=x, padding=keep)
    assert all(torch.equal(call.origin.tokens, x) and torch.equal(call.origin.real, keep) for call in calls(reports))


def test_tokens_of_a_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"tokens has shape \(1, 2, 3\); give \(B, T\)"):
        watched(textbook(), random_x(), tokens=torch.zeros(1, 2, 3))


@torch.no_grad()
def test_cross_attention_is_known_by_name_where_both_texts_are_as_long():
    x, y = ids(2, 7), ids(2, 7)
    for name in ("bart", "t5"):
        _, reports = watched(getattr(models, name)(), input_ids=x, decoder_input_ids=y)
        read = [call.origin.tokens is not None and call.origin.tokens.tolist() for call in calls(reports)]
        assert read == [x.tolist(), x.tolist(), *([y.tolist(), False] * 2)]


@torch.no_grad()
def test_a_decoder_whose_text_is_unknown_does_not_borrow_its_encoders():
    for name in ("bart", "t5"):
        inputs = {"input_ids": ids(), "attention_mask": LEFT.flip(1), "decoder_inputs_embeds": torch.randn(2, 7, 32)}
        _, reports = watched(getattr(models, name)(), **inputs)
        known = [
            (call.origin.tokens is not None, call.origin.real is not None and not call.origin.real.all())
            for call in calls(reports)
        ]
        assert known == [(True, True)] * 2 + [(False, False)] * 4


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("padding", [None, LEFT])
@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral"])
def test_generation_with_a_cache_has_the_ids_of_all_keys(name, padding, cache):
    model, x = getattr(models, name)(), ids()
    how = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "cache_implementation": cache}
    how["attention_mask"] = torch.ones_like(x) if padding is None else padding
    expected = model.generate(x, **how)
    out, reports = watched(model, x, run=model.generate, **how)
    assert torch.equal(out, expected)
    assert [(forward, layer) for forward, layer, _ in reports] == [(f, i) for f in range(4) for i in range(2)]
    mask = torch.nn.functional.pad(how["attention_mask"], (0, 4), value=1)
    for forward, layer, call in reports:
        size = 7 + forward
        window = 3 if name == "mistral" and forward else size  # its cache keeps no more
        assert call.sizes[2:] == (1 if forward else 7, window)
        assert torch.equal(call.origin.tokens, out[:, size - window : size])
        places = (mask[:, :size].cumsum(-1) - 1).clamp(min=0)  # as generate() counts them
        whole = eager(model, input_ids=out[:, :size], attention_mask=mask[:, :size], position_ids=places)
        weights = whole.attentions[layer]
        assert_weights(call, weights[:, :, -call.sizes[2] :, -window:])


@torch.no_grad()
def test_a_prompt_may_be_read_in_pieces():
    model, x = models.llama(), ids(2, 11)
    reports = []
    with models.intercept(model, lambda *report: reports.append(report)):
        first = model(x[:, :6], use_cache=True)
        model(x[:, 6:], past_key_values=first.past_key_values)
        model(x[:, :6])
    expected = eager(model, input_ids=x).attentions
    for call, start, end in zip(calls(reports)[::2], (0, 6, 0), (6, 11, 6), strict=True):
        assert torch.equal(call.origin.tokens, x[:, :end])
        assert_weights(call, expected[0][:, :, start:end, :end])


@pytest.mark.parametrize("name", ["ids", "idx", "tokens"])
def test_ids_are_known_by_the_names_that_people_give_them(name):
    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.vectors, self.attention = nn.Embedding(50, 8), regard.MultiHeadAttention(8, 8, None, 0.0, num_heads=2)

        def forward(self, **given):
            return self.attention(self.vectors(given[name]))

    model, text = Small(), torch.tensor([[5, 6, 7, 5, 6, 7]])
    with regard.watch(model) as seen:
        model(**{name: text})
    with regard.watch(model, tokens=text) as right:
        model(**{name: text})
    assert_close(seen[0].induction, right[0].induction, equal_nan=True)
    assert not seen[0].induction.isnan().all()


@pytest.mark.parametrize(
    "given", [{"tokens": ids(3, 7)}, {"tokens": ids(2, 5)}, {"padding": RIGHT[:, :6].repeat(2, 1)}]
)
def test_tokens_and_padding_of_another_text_are_refused(given):
    layer, x = nn.MultiheadAttention(16, 4, batch_first=True), torch.randn(2, 7, 16)
    (name, value), *_ = given.items()
    shape = rf"\({value.shape[0]}, {value.shape[1]}\)"
    message = rf"{name} has shape {shape} and is of none of the attentions seen \(2 × 7 × 7: texts × queries × keys\)"
    with pytest.raises(ValueError, match=message), regard.watch(layer, **given):
        layer(x, x, x)


X = torch.tensor([[3, 4, 5, 6, 7]])


def annotated(tracker, T, S, module="attention", B=1, **call):
    parts = {"q": torch.zeros(B, 2, T, 3), "k": torch.zeros(B, 2, S, 3)}
    return tracker.annotate(made_call("", **(parts | call)), module)


def entered(*modules):
    """A tracker inside calls of these modules, each given as (module, args, kwargs)."""
    tracker = InputTracker(None, None)
    for module, args, kwargs in modules:
        tracker.enter(module, args, kwargs)
    return tracker


class Reader(nn.Module):
    def forward(self, text, attention_mask=None):
        return text


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Identity()


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((X,), {}, X),
        ((X[0],), {}, X),
        ((), {"input_ids": X}, X),
        ((torch.zeros(1, 5, 2), X), {}, None),  # not the first argument, and no name of ids
        ((X.bool(),), {}, None),
        ((X.float(),), {}, None),
        ((X[None],), {}, None),
    ],
    ids=str,
)
def test_ids_are_the_argument_of_that_name_or_the_first_if_it_holds_integers(args, kwargs, expected):
    call = annotated(entered((nn.Identity(), args, kwargs)), 5, 5)
    assert (call.origin.tokens is None) if expected is None else torch.equal(call.origin.tokens, expected)


def test_ids_are_found_in_modules_inside_but_neither_in_leaves_nor_deep_down():
    embedded = torch.zeros(1, 5, 2)
    outer = (Holder(), (embedded,), {})
    assert torch.equal(annotated(entered(outer, (Holder(), (X,), {})), 5, 5).origin.tokens, X)
    assert annotated(entered(outer, (nn.Identity(), (X,), {})), 5, 5).origin.tokens is None
    assert torch.equal(annotated(entered(outer, outer, (Holder(), (X,), {})), 5, 5).origin.tokens, X)
    assert annotated(entered(outer, outer, outer, (Holder(), (X,), {})), 5, 5).origin.tokens is None


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (torch.tensor([[0, 1, 1, 1, 1]]), [[False, True, True, True, True]]),
        (torch.tensor([[0.0, 1.0, 1.0, 1.0, 1.0]]), [[False, True, True, True, True]]),
        (torch.tensor([[-1e9, 0.0, 0.0, 0.0, 0.0]]), None),  # added to the scores
        (torch.ones(1, 1, 5, 5), None),
    ],
    ids=str,
)
def test_an_attention_mask_is_padding_where_it_has_two_axes_and_no_negative_numbers(mask, expected):
    for args, kwargs in (((X, mask), {}), ((X,), {"attention_mask": mask})):
        call = annotated(entered((Reader(), args, kwargs)), 5, 5)
        assert (None if call.origin.real is None else call.origin.real.tolist()) == expected


def test_a_padding_mask_of_earlier_and_new_keys_is_cut_to_the_queries():
    mask = torch.tensor([[0, 1, 1, 1, 0, 1, 1]])
    tracker = entered((Reader(), (X[:, :3],), {"attention_mask": mask}))
    assert annotated(tracker, 3, 7).origin.real.tolist() == [[False, True, True]]
    assert annotated(tracker, 2, 7).origin.real is None  # of other queries


def test_a_module_inside_with_only_a_padding_mask_reads_the_ids_around_it():
    outer = (Reader(), (X,), {})
    hidden = torch.tensor([[False, False, False, False, True]])
    call = annotated(entered(outer, (Holder(), (), {"src_key_padding_mask": hidden})), 5, 5)
    assert torch.equal(call.origin.tokens, X)
    assert torch.equal(call.origin.real, ~hidden)
    call = annotated(entered(outer, (Holder(), (), {"src_key_padding_mask": hidden[:, :4]})), 4, 4)
    assert call.origin.tokens is None
    assert torch.equal(call.origin.real, ~hidden[:, :4])


KEYS = torch.randn(1, 2, 9, 3, generator=torch.Generator().manual_seed(0))


def test_keys_of_a_cache_have_the_ids_of_earlier_calls():
    tracker, model = InputTracker(None, None), Reader()
    for new, keys, expected in ((3, 3, [3, 4, 5]), (1, 4, [3, 4, 5, 6]), (1, 5, [3, 4, 5, 6, 7])):
        tracker.enter(model, (X[:, keys - new : keys],), {})
        assert annotated(tracker, new, keys, k=KEYS[:, :, :keys]).origin.tokens.tolist() == [expected]
        tracker.leave()
    tracker.enter(model, (X[:, :2],), {})  # a new text
    assert annotated(tracker, 2, 2, k=KEYS[:, :, :2]).origin.tokens.tolist() == [[3, 4]]


def test_keys_that_no_earlier_call_had_have_no_ids():
    tracker, model = InputTracker(None, None), Reader()
    for keys, known in ((KEYS[:, :, :3], True), (KEYS[:, :, 1:5], False)):
        tracker.enter(model, (X[:, : 3 if known else 1],), {})
        call = annotated(tracker, 3 if known else 1, keys.shape[2], k=keys)
        assert (call.origin.tokens is not None) is known
        tracker.leave()


def test_a_cache_that_keeps_the_last_keys_has_their_ids_and_those_it_dropped():
    tracker, model = InputTracker(None, None), Reader()
    tracker.enter(model, (X[:, :4],), {})
    annotated(tracker, 4, 4, k=KEYS[:, :, :4])
    tracker.leave()
    tracker.enter(model, (X[:, 4:],), {})
    call = annotated(tracker, 1, 3, k=KEYS[:, :, 2:5])
    assert call.origin.tokens.tolist() == [[5, 6, 7]]
    assert call.origin.dropped.tolist() == [[3, 4]]
    assert call.origin.first.tolist() == [-2]
    assert annotated(tracker, 1, 6).origin.tokens is None  # more keys than ids


def test_slots_of_a_static_cache_that_no_query_may_see_are_left_out():
    allowed = torch.tensor([[True] * 5 + [False] * 2])
    call = annotated(entered((Reader(), (X,), {})), 5, 7, mask=Padding(allowed))
    assert call.sizes == (1, 2, 5, 5)
    assert torch.equal(call.attention.mask.keep, allowed[:, :5])
    assert torch.equal(call.origin.tokens, X)
    visible = torch.tensor([[True] * 6 + [False]])
    assert annotated(entered((Reader(), (X,), {})), 5, 7, mask=Padding(visible)).sizes == (1, 2, 5, 7)


@pytest.mark.parametrize(
    ("T", "S", "module", "expected"),
    [
        (5, 4, "layers.0.attn", True),  # the length of the encoder's text
        (5, 5, "layers.0.attn", False),
        (4, 4, "layers.0.attn", True),  # no length of the decoder's text
        (5, 5, "layers.0.crossattention.self", True),  # a name
        (5, 5, "cross_model.layers.0.attn", False),  # a name further up says nothing
    ],
)
def test_cross_attention_is_known_from_the_encoders_states_or_from_a_name(T, S, module, expected):
    tracker = entered((Reader(), (X,), {"encoder_hidden_states": torch.zeros(1, 4, 2)}), (Holder(), (), {}))
    call = annotated(tracker, T, S, module)
    assert call.origin.across is expected
    assert (call.origin.tokens is None) is (expected or T != 5)


@pytest.mark.parametrize("sizes, T, batch", [((2, 5, 3), 5, 2), ((5, 2, 3), 5, 2), ((5, 5, 3), 5, 5), ((7,), 5, 7)])
def test_the_batch_size_is_read_from_the_first_argument(sizes, T, batch):
    assert entered((nn.Identity(), (torch.zeros(sizes),), {})).batch_size(T) == batch


def test_the_batch_size_of_ids_comes_first():
    assert entered((nn.Identity(), (torch.zeros(7, 5, 3),), {"input_ids": X.expand(2, -1)})).batch_size(5) == 2


@pytest.mark.parametrize(
    ("padding", "T", "S", "expected"),
    [
        ([1, 0, 1, 1, 1], 5, 5, [[True, False, True, True, True]]),
        ([1, 0, 1, 1, 1], 3, 5, [[True, True, True]]),
        ([0, 1, 0], 2, 5, [[True, True]]),  # a prompt; generated tokens are real
        ([0, 1, 1], 3, 2, [[False, True, True]]),  # of the queries
        ([0, 1, 1], 4, 2, None),
        ([0, 1], 4, 2, None),
    ],
    ids=str,
)
def test_padding_of_the_user_is_fitted_to_the_queries(padding, T, S, expected):
    tracker = InputTracker(None, torch.tensor(padding))
    tracker.enter(nn.Identity(), (torch.zeros(1, T, 2),), {})
    call = annotated(tracker, T, S)
    assert (None if call.origin.real is None else call.origin.real.tolist()) == expected
    if expected is None:
        with pytest.raises(
            ValueError, match=rf"padding has shape \(1, {len(padding)}\) and is of none .*1 × {T} × {S}"
        ):
            tracker.check_used()
    else:
        tracker.check_used()
