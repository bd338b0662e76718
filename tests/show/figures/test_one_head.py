"""One head as a heat map."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

import regard
from helpers import says_it_ourselves
from regard.show.figures import draw_weights
from regard.show.figures.one_head import TICKS

WORDS = ["The", " cat", " saw", " the", " cat", "nip"]


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_the_cells_are_the_weights_and_what_the_mask_hides_is_masked(watched):
    head = watched(T=6, texts=2, tokens=WORDS)[0, 1]
    axes = head.plot(text=1)
    drawn = axes.collections[0].get_array()
    np.testing.assert_array_equal(drawn.data, head.weights()[1].numpy())
    np.testing.assert_array_equal(drawn.mask, np.triu(np.ones((6, 6), dtype=bool), 1))
    assert axes.get_ylim() == (6, 0)  # the first query is on top


def test_rows_and_columns_have_the_labels_of_their_tokens(watched):
    axes = watched(T=6, tokens=WORDS)[0, 1].plot()
    assert labels(axes.yaxis) == labels(axes.xaxis) == ["The", "cat@1", "saw", "the", "cat@4", "nip"]
    assert axes.get_title(loc="left").startswith("0.1 ")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key", "query")


def test_chosen_rows_and_columns_are_drawn_in_their_order(watched):
    head = watched(T=6, tokens=WORDS)[0, 1]
    axes = head.plot(rows=["nip", "the"], cols=slice(0, 2))
    np.testing.assert_array_equal(axes.collections[0].get_array(), head.weights([5, 3], [0, 1])[0].numpy())
    assert (labels(axes.yaxis), labels(axes.xaxis)) == (["nip", "the"], ["The", "cat@1"])


@pytest.mark.parametrize(("T", "upright"), [(14, False), (15, True)])
def test_labels_are_upright_from_15_tokens(watched, T, upright):
    axes = watched(T=T)[0, 1].plot(width=6.9)
    assert {label.get_rotation() for label in axes.get_xticklabels()} == {90.0 if upright else 0.0}


def test_labels_that_do_not_fit_their_cells_are_upright(watched):
    words = [" characteristic"] * 5
    axes = watched(T=5, tokens=words)[0, 1].plot()
    assert {label.get_rotation() for label in axes.get_xticklabels()} == {90.0}


def test_many_tokens_have_every_nth_label(watched):
    axes = watched(T=101)[0, 1].plot()
    shown = [int(label) for label in labels(axes.xaxis)]
    every = shown[1]
    assert shown == list(range(0, 101, every))
    width = axes.get_window_extent().width * 72 / axes.figure.dpi
    assert width / 101 * every >= 9.5 > width / 101 * (every - 1)


def test_no_label_hides_another(watched):
    axes = watched(T=23, tokens=[f" word{i}" for i in range(23)])[0, 1].plot()
    for one_axis in (axes.yaxis, axes.xaxis):
        boxes = [label.get_window_extent() for label in one_axis.get_ticklabels()]
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])


def test_weights_are_written_where_they_fit(watched):
    head = watched(T=5)[0, 1]
    texts = {text.get_position(): text.get_text() for text in head.plot().texts}
    weights = head.weights()[0]
    assert set(texts) == {(c + 0.5, r + 0.5) for r in range(5) for c in range(r + 1)}
    assert texts[0.5, 0.5] == "1"
    assert all(abs(float(texts[c + 0.5, r + 0.5]) - weights[r, c]) <= 0.00501 for r in range(5) for c in range(r + 1))
    assert list(watched(T=31)[0, 1].plot().texts) == []


def test_the_scale_has_its_ticks_and_is_in_the_empty_corner_of_a_causal_map(watched):
    for causal, inside in ((True, True), (False, False)):
        axes = watched(T=29, causal=causal)[0, 1].plot()
        (bar,) = axes.child_axes
        assert labels(bar.yaxis) == ["0", ".02", ".1", ".25", ".5", "1"]
        assert bar.get_yticks().tolist() == list(TICKS)
        axes.figure.draw_without_rendering()
        assert bool(bar.get_window_extent().x0 < axes.get_window_extent().x1) is inside


def test_a_long_text_is_pooled_and_says_so(watched):
    head = watched(T=521)[0, 1]
    axes = head.plot()
    assert axes.get_title(loc="left").endswith(" · pooled, 1–2 × 1–2 tokens a cell")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("position of the key", "position of the query")
    assert axes.collections[0].get_array().shape == (512, 512)
    assert axes.get_xlim() == (0, 521)
    assert axes.collections[0].get_rasterized()


def test_cross_attention_has_its_own_keys(watched):
    head = watched(T=3, S=5, causal=False)[0, 1]
    axes = head.plot()
    np.testing.assert_array_equal(axes.collections[0].get_array(), head.weights()[0].numpy())
    assert (labels(axes.yaxis), labels(axes.xaxis)) == (["0", "1", "2"], ["0", "1", "2", "3", "4"])


def test_a_text_that_does_not_exist_is_refused(watched):
    with pytest.raises(ValueError, match="text 3 does not exist: there are 3, 0 to 2"):
        watched(T=5, texts=3)[0, 1].plot(text=3)


def test_without_queries_and_keys_there_is_no_map():
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=None, dropout=0.0, num_heads=2)
    with torch.no_grad(), regard.watch(layer, keep=False) as seen:
        layer(torch.randn(1, 5, 6))
    with pytest.raises(ValueError, match=r"plot\(\) needs the queries and keys of .* watch with keep=True"):
        seen[0, 1].plot()
    assert plt.get_fignums() == []


def test_a_token_is_drawn_in_the_heads_that_say_most_about_it(watched):
    sat = watched(T=6, layers=2, tokens=WORDS).at("saw")
    axes = sat.plot()
    drawn = axes.collections[0].get_array()
    np.testing.assert_array_equal(drawn.data, np.stack([one.weights.numpy() for one in sat]))
    np.testing.assert_array_equal(drawn.mask, np.tile(np.arange(6) > 2, (4, 1)))
    assert [label[:3] for label in labels(axes.yaxis)] == [f"{one.head.layer}.{one.head.head}" for one in sat]
    assert axes.get_title(loc="left") == "where saw looks"


def test_a_token_of_a_long_text_is_refused(watched):
    with pytest.raises(ValueError, match=r"at most 512 keys are drawn, and token 7 has 521; watch a shorter text"):
        watched(T=521).at(7).plot()


def test_weights_of_ones_own_are_drawn_with_words_at_both_sides():
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.25, 0.75, 0.0]])
    mask = torch.tensor([[True, False, False], [True, True, False]])
    axes = draw_weights(weights, ["I", "see"], ["I", "see", "it"], "mine", mask=mask)
    drawn = axes.collections[0].get_array()
    np.testing.assert_array_equal(drawn.data, weights.numpy())
    np.testing.assert_array_equal(drawn.mask, ~mask.numpy())
    assert (labels(axes.yaxis), labels(axes.xaxis)) == (["I", "see"], ["I", "see", "it"])
    assert axes.get_title(loc="left") == "mine"


@says_it_ourselves
def test_weights_that_are_not_one_matrix_say_what_is_needed():
    with pytest.raises(ValueError, match=r"weights has shape \(2, 3\), for 2 rows and 2 columns; give one word"):
        draw_weights(torch.ones(2, 3), ["I", "see"], ["I", "see"])
    with pytest.raises(ValueError, match=r"mask has shape \(3, 2\) but weights here are \(2, 3\)"):
        draw_weights(torch.ones(2, 3), ["I", "see"], ["I", "see", "it"], mask=torch.ones(3, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"1 to 512 rows and columns are drawn, not 0 × 1"):
        draw_weights(torch.ones(0, 1), [], ["it"])
