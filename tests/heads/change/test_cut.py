"""cut: heads and edges switched off while a model runs, alone, nested and watched, and nothing left behind."""

import copy
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard
from heads import models
from heads.models import E, Layers, ids, textbook
from helpers import says_it_ourselves

pytestmark = [
    pytest.mark.usefixtures("unchanged"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
]
B, T, H, D = 2, 7, 3, 4
HIDDEN = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])


def x(seed=0):
    return torch.randn(B, T, E, generator=torch.Generator().manual_seed(seed))


def layer(**options):
    torch.manual_seed(3)
    made = regard.MultiHeadAttention(d_in=E, d_out=E, context_length=16, dropout=0.0, num_heads=H, **options)
    return made.eval()


def hidden_edges(*edges):
    hidden = torch.zeros(T, T, dtype=torch.bool)
    for query, key in edges:
        hidden[query, key] = True
    return hidden


# what a head hands over


def test_a_head_hands_over_given_values():
    made = layer()
    with regard.watch(made, values=True) as seen:
        made(x())
    for value in (torch.randn(D), torch.randn(T, D), torch.randn(B, T, D)):
        with regard.cut(made, [(0, 0), (0, 2)], to={(0, 0): value, (0, 2): 2 * value}):
            out = made(x())
        context = seen[0].context.clone()
        context[:, 0], context[:, 2] = value, 2 * value
        torch.testing.assert_close(out, made.out_proj(context.transpose(1, 2).flatten(2)))


def test_the_mean_leaves_padding_out():
    model, x = models.bert(), ids(B, T)
    mask = (~HIDDEN).long()
    with torch.no_grad():
        with regard.watch(model, values=True) as seen:
            model(x, attention_mask=mask)
        mean = seen[0, 1].context[~HIDDEN].mean(0)
        with regard.cut(model, (0, 1), to="mean"):
            out = model(x, attention_mask=mask)[0]
        with regard.cut(model, (0, 1), to=mean):
            torch.testing.assert_close(model(x, attention_mask=mask)[0], out)


def test_a_mean_of_one_cached_token_is_refused():
    model, x = models.llama(), ids(B, T)
    with (
        pytest.raises(
            ValueError, match=r'to="mean" is the mean over the tokens of one forward, and this one has 1 of 8'
        ),
        regard.cut(model, (0, 1), to="mean"),
    ):
        model.generate(x, max_new_tokens=2, min_new_tokens=2)
    with regard.cut(model, (0, 1), to=torch.zeros(8)):
        given = model.generate(x, max_new_tokens=2, min_new_tokens=2)
    with regard.cut(model, (0, 1)):
        assert torch.equal(model.generate(x, max_new_tokens=2, min_new_tokens=2), given)


@torch.no_grad()
def test_a_head_does_what_it_did_on_another_text():
    model = models.gpt2()
    this, other = ids(1, T), ids(1, T)
    with regard.watch(model, values=True) as seen:
        theirs = model(other).logits
    everything = [(layer, head) for layer in range(2) for head in range(3)]
    with regard.cut(model, everything, to=seen), regard.watch(model, values=True) as patched:
        mine = model(this).logits
    torch.testing.assert_close(patched[1].context, seen[1].context)
    assert not torch.allclose(mine, theirs)  # the text itself is still another one
    message = r"1 × 5 × 8 numbers .* values of shape \(1, 7, 8\); give \(8,\), \(5, 8\) or"
    with pytest.raises(ValueError, match=message), regard.cut(model, (0, 1), to=seen):
        model(ids(1, 5))


# cuts together, with watches, and what is left behind


@given(first=st.sets(st.integers(0, 8)), second=st.sets(st.integers(0, 8)))
def test_nested_cuts_add_up(first, second):
    model = Layers(textbook)
    model.layers.append(textbook())

    def heads(numbers):
        return [(number // 3, number % 3) for number in sorted(numbers)]

    with regard.cut(model, heads(first)), regard.cut(model, heads(second)):
        nested = model(x())
    with regard.cut(model, heads(first | second)):
        assert torch.equal(model(x()), nested)


@given(edges=st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)).map(lambda e: (max(e), min(e))), min_size=1))
def test_any_edges_are_the_same_as_a_mask(edges):
    made = layer()
    with regard.cut(made, edges=sorted(edges)):
        out = made(x())
    torch.testing.assert_close(out, made(x(), mask=regard.dense(~hidden_edges(*edges))), rtol=1e-5, atol=1e-5)


@given(keep=st.integers(0, 2), seed=st.integers(0, 100))
def test_heads_that_are_not_cut_hand_over_what_they_did(keep, seed):
    made = layer()
    with regard.watch(made, values=True) as whole:
        made(x(seed))
    with regard.cut(made, [(0, h) for h in range(H) if h != keep]), regard.watch(made, values=True) as seen:
        made(x(seed))
    assert torch.equal(seen[0, keep].context, whole[0, keep].context)
    assert torch.equal(seen[0].weights(), whole[0].weights())


@pytest.mark.parametrize("nothing", [{"heads": []}, {"edges": []}, {"heads": [], "edges": [(3, 1)]}])
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_cutting_nothing_changes_nothing_bit_for_bit(name, nothing):
    model, x = getattr(models, name)(), ids()
    before = model(x)[0]
    with regard.cut(model, **nothing):
        assert torch.equal(model(x)[0], before)


def test_cutting_all_heads_of_a_layer_removes_its_attention_but_for_the_bias():
    model, x = models.gpt2(), ids()
    removed = copy.deepcopy(model)
    removed.transformer.h[1].attn.c_proj.weight.data.zero_()
    with regard.cut(model, [(1, head) for head in range(3)]):
        torch.testing.assert_close(model(x).logits, removed(x).logits, rtol=0, atol=1e-6)


def test_the_inner_of_two_cuts_of_one_head_decides():
    made, value = layer(), torch.randn(D)
    with regard.cut(made, (0, 1), to=value):
        alone = made(x())
    with regard.cut(made, (0, 1)), regard.cut(made, (0, 1), to=value):
        assert torch.equal(made(x()), alone)


def test_a_watch_sees_the_same_around_a_cut_and_inside():
    model, x = models.llama(), ids()
    with regard.watch(model) as around, regard.cut(model, (0, 1)), regard.cut(model, edges=[(3, 1)]):
        model(x)
    with regard.cut(model, (0, 1)), regard.cut(model, edges=[(3, 1)]), regard.watch(model) as inside:
        model(x)
    for layer in (0, 1):
        assert torch.equal(around[layer].weights(), inside[layer].weights())
        assert torch.equal(around[layer].entropy, inside[layer].entropy)
        assert not inside[layer].weights(rows=3)[..., 1].any()


@pytest.mark.parametrize("cut", [{"heads": (0, 9)}, {"heads": (0, 1), "to": torch.zeros(5)}, {"edges": [("a", 1)]}])
def test_after_an_error_the_model_is_as_before(cut):
    model, x = models.gpt2(), ids()
    before = model(x).logits
    with pytest.raises(ValueError, match=r"head 9|values of shape|no tokenizer"), regard.cut(model, **cut):
        model(x)
    assert torch.equal(model(x).logits, before)


def test_another_thread_is_not_cut():
    model, x, outs = models.gpt2(), ids(), []
    before = model(x).logits
    with regard.cut(model, (0, 1)):
        thread = threading.Thread(target=lambda: outs.append(model(x).logits))
        thread.start()
        thread.join()
        assert not torch.equal(model(x).logits, before)
    assert torch.equal(outs[0], before)


def test_autocast_and_inference_mode_are_cut():
    model, x = models.llama(), ids()
    for cut in ({"heads": (0, 1)}, {"edges": [(3, 1)]}):
        with torch.no_grad(), regard.cut(model, **cut):
            expected = model(x).logits
        with torch.inference_mode(), regard.cut(model, **cut):
            assert torch.equal(model(x).logits, expected)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), regard.cut(model, **cut):
            out = model(x).logits
        assert out.dtype is torch.bfloat16
        torch.testing.assert_close(out.float(), expected, rtol=0, atol=2e-2)


@pytest.mark.compiled
def test_a_compiled_model_runs_uncompiled_and_is_cut():
    model, x = models.gpt2(), ids()
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        compiled(x)
        with regard.cut(model, (0, 1)):
            expected = model(x).logits
        with regard.cut(compiled, (0, 1)):
            torch.testing.assert_close(compiled(x).logits, expected)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_layer_that_is_computed_again_in_backward_is_refused(reentrant):
    model, x = models.llama().train(), ids()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    message = (
        r"attention in model.layers.0.self_attn runs in torch.utils.checkpoint, .* switch gradient checkpointing off"
    )
    with pytest.raises(ValueError, match=message), regard.cut(model, (0, 1)):
        model(x, use_cache=False)


def test_generation_takes_no_decoder_that_skips_the_layers():
    model, text = regard.GPT.from_pretrained("tiny"), "Alice was beginning to get very tired"
    ids = model.tokenizer.encode(text)
    for cut in ({"heads": [(0, 2), (4, 3)]}, {"edges": [(2, 1), (len(ids) + 1, 3)]}):
        with regard.cut(model, **cut):
            written = model.generate(text, max_new_tokens=4, temperature=0)
            tokens = list(ids)
            with torch.no_grad():
                for _ in range(4):
                    tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
        assert written == model.tokenizer.decode(tokens[len(ids) :])


def test_without_the_head_that_looks_back_the_copying_head_of_the_packaged_model_copies_half():
    model = regard.GPT.from_pretrained("tiny")
    line = "Alice was beginning to get very tired of sitting by her sister on the bank"
    x = torch.tensor([model.tokenizer.encode(f"{line},\nand {line}.\n")])
    with regard.watch(model) as whole:
        model(x)
    with regard.cut(model, (0, 2)), regard.watch(model) as seen:
        model(x)
    assert whole[4, 3].summary["induction"] == pytest.approx(0.80, abs=0.01)
    assert seen[4, 3].summary["induction"] == pytest.approx(0.38, abs=0.01)


def test_words_are_edges_in_every_text_of_a_batch():
    model = regard.GPT.from_pretrained("tiny")
    texts = ["The cat sat on the mat", "On the mat the cat sat"]
    x = torch.tensor([model.tokenizer.encode(text) for text in texts])
    with regard.cut(model, edges=[("sat", "cat")]), regard.watch(model) as seen:
        model(x)
    for number, tokens in enumerate(seen.tokens):
        row, col = tokens.find("sat"), tokens.find("cat")
        assert not seen[3].weights(rows=row)[number, :, 0, col].any()
        assert (seen[3].weights(rows=row)[number, :, 0, :col] > 0).all()
    assert seen.tokens[0].find("sat") != seen.tokens[1].find("sat")


# arguments

WRONG = {
    "nothing": ({}, "nothing is named to be cut; give heads"),
    "an unknown head": (
        {"heads": (0, 3)},
        r"layer 0 \(transformer.h.0.attn\) has heads 0 to 2, and head 3 was to be cut",
    ),
    "an unknown layer": ({"heads": (2, 0)}, "layer 2 was to be cut, and the model attended in layers 0 to 1 inside"),
    "an unknown layer of edges": (
        {"edges": [(3, 1)], "layers": [0, 5]},
        "layer 5 was to be cut, and the model attended",
    ),
    "an edge past the text": ({"edges": [(7, 1)]}, r"edge \(7, 1\) was not there to cut: .* had 7 queries and 7 keys"),
    "an edge that nobody sees": ({"edges": [(1, 3)]}, r"\(1, 3\) was not there to cut: .* did you mean \(3, 1\)\?"),
    "no numbers": ({"heads": "0.2"}, r"a head is \(layer, head\) and this is '0.2'; give numbers"),
    "no pairs": ({"heads": [0, 2]}, r"a head is \(layer, head\) and this is 0; several are a list"),
    "a negative head": ({"heads": (0, -1)}, "head -1 must be a whole number from 0"),
    "layers in a tensor": (
        {"edges": [(3, 1)], "layers": torch.tensor([0, 1])},
        r"layer tensor\(0\) must be a whole number",
    ),
    "a layer by name": ({"heads": [("h.0", 1)]}, "layer 'h.0' must be a whole number from 0"),
    "an unknown value": ({"heads": (0, 1), "to": "median"}, "to='median' is not known; a head hands over 0"),
    "another number": ({"heads": (0, 1), "to": 1.0}, "to=1.0 is not known"),
    "a missing value": ({"heads": (0, 1), "to": {}}, r"to has no values for \(0, 1\); give a tensor for each head"),
    "a value too many": (
        {"heads": (0, 1), "to": {(0, 1): torch.zeros(8), (0, 2): torch.zeros(8)}},
        r"to has values for \(0, 2\), which is not cut",
    ),
    "a value of no tensor": ({"heads": (0, 1), "to": {(0, 1): 0}}, r"to\[\(0, 1\)\] must be a tensor and is a int"),
    "edges in one string": ({"edges": "ab"}, r"edges are \(query, key\) pairs and this is 'ab'"),
    "an edge of three": ({"edges": [(1, 2, 3)]}, r"an edge is \(query, key\) and this is \(1, 2, 3\)"),
    "a negative position": ({"edges": [(-1, 0)]}, r"edge \(-1, 0\) has -1; tokens are words, or positions from 0"),
    "edges to a value": ({"edges": [(3, 1)], "to": "mean"}, "to= is what a head hands over; edges are removed"),
    "layers without edges": ({"heads": (0, 1), "layers": [0]}, "layers are those in which edges are cut"),
    "layers and heads": (
        {"heads": (0, 1), "edges": [(3, 1)], "layers": [0]},
        "heads say in which layers edges are cut",
    ),
}


@says_it_ourselves
@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused_with_the_rule(name):
    arguments, message = WRONG[name]
    model = models.gpt2()
    with pytest.raises(ValueError, match=message), regard.cut(model, **arguments):
        model(ids(2, 7))


@says_it_ourselves
def test_a_model_that_is_not_called_or_that_is_no_model_is_refused():
    with (
        pytest.raises(ValueError, match="the model was not called inside the block"),
        regard.cut(models.gpt2(), (0, 0)),
    ):
        pass
    with (
        pytest.raises(ValueError, match=r"cut\(\) takes a torch.nn.Module and this is a str"),
        regard.cut("gpt2", (0, 0)),
    ):
        pass


def test_a_report_without_values_is_refused():
    model, x = models.gpt2(), ids()
    with regard.watch(model) as seen:
        model(x)
    with pytest.raises(ValueError, match=r"not kept; watch with values=True"), regard.cut(model, (0, 1), to=seen):
        model(x)


def test_heads_of_a_report_can_be_cut():
    model = regard.GPT.from_pretrained("tiny")
    x = torch.tensor([model.tokenizer.encode("The cat sat on the mat and the cat sat")])
    with regard.watch(model) as seen:
        model(x)
    chosen = seen.heads(role="previous token")
    assert len(chosen) > 1
    with regard.cut(model, chosen):
        out = model(x)
    with regard.cut(model, [(head.layer, head.head) for head in chosen]):
        assert torch.equal(model(x), out)
    with regard.cut(model, seen[0, 2]):
        out = model(x)
    with regard.cut(model, (0, 2)):
        assert torch.equal(model(x), out)


def test_edges_everywhere_are_refused_where_a_second_text_is_read():
    model = models.bart()
    message = r"encoder_attn is cross-attention, .* name the layers in which edges are cut"
    with pytest.raises(ValueError, match=message), regard.cut(model, edges=[(3, 1)]):
        model(input_ids=ids(2, 7), decoder_input_ids=ids(2, 5))
