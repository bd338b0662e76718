"""Which rows are kept as examples: those that a sort over the whole corpus would keep, whatever the batches."""

import pytest
import torch

import regard
from heads.atlas.corpora import LAYERS, H, Letters, dense_values, kept, small_model
from regard.heads.atlas.cells import row_tokens
from regard.heads.atlas.collect import AtlasBuilder
from regard.heads.atlas.examples import KEPT, STRENGTHS, STRONGEST, UNIFORM, ExampleRow, ExcerptToken, Samples
from regard.heads.measure.registry import AVERAGED
from regard.traces.trace import trace_layers

ROWS = 6
TEXTS = torch.randint(0, 31, (ROWS, 41), generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def whole(model):
    return regard.atlas(model, [TEXTS], tokenizer=Letters())


def ranked(model):
    """For each layer and head, every row with a choice: (random number, strength, text key, token)."""
    rows = {}
    for ids in TEXTS:
        values = dense_values(model, ids[None])
        with torch.no_grad(), regard.watch(model) as seen:
            model(ids[None])
        tokens = row_tokens(seen[0].record, None)
        for layer in range(LAYERS):
            for head in range(H):
                strengths = values[layer][head, AVERAGED.index("largest")].tolist()
                own = zip(tokens.numbers[0].tolist(), strengths, strict=True)
                some = [(number, strength, int(tokens.keys[0]), at) for at, (number, strength) in enumerate(own) if at]
                rows.setdefault((layer, head), []).extend(some)
    return rows


def test_a_group_has_the_rows_that_sorting_all_of_them_gives(model, whole):
    for (layer, head), rows in ranked(model).items():
        samples = whole.layers[layer].samples
        for group in range(STRENGTHS):
            inside = sorted(row for row in rows if min(int(row[1] * STRENGTHS), STRENGTHS - 1) == group)
            found = [(one.text, one.token) for one in samples.of(head, group)]
            assert found == [row[2:] for row in inside[: KEPT[group]]]
        found = [(one.text, one.token) for one in samples.of(head, UNIFORM)]
        assert found == [row[2:] for row in sorted(rows)[: KEPT[UNIFORM]]]
        strongest = sorted(rows, key=lambda row: (-round(row[1] * 10_000), row[0] >> 15))[: KEPT[STRONGEST]]
        assert [(one.text, one.token) for one in samples.of(head, STRONGEST)] == [row[2:] for row in strongest]


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1, 1), (4, 2), (2, 3, 1)])
def test_batches_and_their_order_change_no_example(model, whole, sizes):
    batches = TEXTS.split(list(sizes))
    assert kept(regard.atlas(model, batches, tokenizer=Letters())) == kept(whole)
    assert kept(regard.atlas(model, batches[::-1], tokenizer=Letters())) == kept(whole)
    parts = [regard.atlas(model, [one], tokenizer=Letters()) for one in batches]
    assert kept(sum(parts[1:], parts[0])) == kept(whole)


def test_a_text_that_is_read_twice_is_one_example(model, whole):
    assert kept(whole + whole) == kept(whole)


def test_keys_and_weights_are_the_largest_of_the_row(model, whole):
    known = {}
    builder = AtlasBuilder(model)
    for ids in TEXTS:
        builder.add(ids[None])
        traces = trace_layers(model, {"ids": ids[None]}, range(LAYERS))
        with torch.no_grad(), regard.watch(model) as seen:
            model(ids[None])
        known[int(row_tokens(seen[0].record, None).keys[0])] = traces
    compared = 0
    for number, layer in enumerate(whole.layers):
        for (head, _), rows in layer.samples.groups.items():
            for _, one in rows:
                row = known[one.text][number]["weights"][0, head, one.token]
                best = row.topk(min(8, len(row)))
                few = best.values >= 0.01
                assert list(one.keys) == best.indices[few].tolist()
                assert list(one.weights) == pytest.approx(best.values[few].tolist(), rel=1e-9)
                compared += 1
    assert compared > 200


def test_an_excerpt_has_the_words_around_the_row_and_its_keys(whole):
    letters = Letters()
    texts = ["".join(letters.characters[i] for i in row) for row in TEXTS.tolist()]
    for one in whole[1, 2].examples("uniform"):
        (own,) = [text for text in texts if all(text[at] == piece.text for at, piece in one.pieces.items())]
        wanted = {at for at in range(one.token - 12, one.token + 4) if 0 <= at < len(own)}
        wanted |= {at for key in one.keys for at in range(key - 1, key + 2) if 0 <= at < len(own)}
        assert set(one.pieces) == wanted


def test_deciles_have_rows_of_that_tenth(whole):
    head = whole[0, 1]
    for decile in range(10):
        low, high = (head.quantile("largest", share / 10) for share in (decile, decile + 1))
        for one in head.examples(decile):
            assert low - 1 / 256 <= one.strength <= high + 1 / 256
    assert sum(bool(head.examples(decile)) for decile in range(10)) >= 8
    with pytest.raises(ValueError, match=r'examples are "strongest", "uniform" or of a decile, 0 to 9; this is 10'):
        head.examples(10)


def test_an_example_is_read_as_text():
    pieces = {i: ExcerptToken(text, False) for i, text in enumerate(["The", " cat", " sat", "\x1b[2J", "\n", " on"])}
    one = ExampleRow(7, 5, 0.9, (1, 0), (0.9, 0.05), {at: piece for at, piece in pieces.items() if at != 2})
    assert str(one) == r"The [cat] … \x1b[2J ⏎ «on»"
    assert one.word == "on@5"
    assert one.name(2) == "@2"


def test_without_token_ids_there_are_sums_and_no_examples():
    layer = regard.MultiHeadAttention(d_in=12, d_out=12, context_length=16, dropout=0.0, num_heads=3)
    atlas = regard.atlas(layer, [torch.randn(2, 7, 12)])
    assert atlas[0, 1].count("entropy") == 14
    assert (atlas[0, 1].examples(), atlas[0, 1].by_class("entropy")) == ([], {})


def test_samples_keep_the_smallest_keys():
    samples = Samples(1)
    for key in (5, 3, 9, 1, 7, 3):
        samples.put(0, 0, key, ExampleRow(key, 0, 0.5, (), (), {}))
    assert [one.text for one in samples.of(0, 0)] == [1, 3, 5, 7]
