"""A statistic over layers."""

import numpy as np


def test_there_is_a_dot_for_each_head_and_a_line_through_their_means(watched):
    seen = watched(T=7, heads=3, layers=5)
    means = np.array([[head["entropy"] for head in layer.summary] for layer in seen])
    axes = seen.plot_layers("entropy")
    dots = [[layer, mean] for layer, heads in enumerate(means) for mean in heads]
    np.testing.assert_allclose(axes.collections[0].get_offsets(), dots)
    np.testing.assert_allclose(axes.lines[0].get_xydata(), np.stack([np.arange(5), means.mean(1)], 1))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("layer", "entropy (nats)")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a head", "mean of the layer"]
    assert axes.get_ylim()[0] == 0


def test_weights_are_drawn_from_0_to_1(watched):
    assert watched(T=7, layers=2).plot_layers("largest").get_ylim() == (0, 1)
