"""A trace as a figure."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

import regard
from regard.ladder import MultiHeadAttention
from regard.show.figures import save_figure

SHOWN = [
    "x",
    "queries",
    "keys",
    "values",
    "split",
    "transpose",
    "scores",
    "mask",
    "scaled",
    "weights",
    "dropout",
    "context",
    "back",
    "concat",
    "out",
]


@pytest.fixture
def ladder():
    layer = MultiHeadAttention(d_in=6, d_out=15, context_length=11, dropout=0.0, num_heads=3)
    return regard.trace(layer, torch.randn(2, 7, 6))


def pictures(axes):
    names = [text.get_text() for text in axes.texts if text.get_weight() == "bold"]
    return dict(zip(names, [image.get_array() for image in axes.images], strict=True))


def test_every_step_is_a_picture_of_its_values(ladder):
    drawn = pictures(ladder.plot(text=1, head=2))
    assert list(drawn) == SHOWN
    hidden = np.triu(np.ones((7, 7), dtype=bool), 1)
    for name, values in drawn.items():
        tensor = ladder[name][1].double()
        if name in ("split", "back"):
            tensor = tensor[:, 2]
        elif tensor.dim() == 3:
            tensor = tensor[2]
        mask = hidden if name in ("mask", "scaled", "weights", "dropout") else np.zeros(tensor.shape, dtype=bool)
        np.testing.assert_array_equal(np.ma.getmaskarray(values), mask, err_msg=name)
        np.testing.assert_array_equal(values[~mask], tensor.numpy()[~mask], err_msg=name)


def test_name_shape_and_operation_are_written(ladder):
    texts = [text.get_text() for text in ladder.plot().texts]
    assert texts[0].startswith("row: a token")
    assert texts[1:4] == ["x", "2 × 7 × 6", "input"]
    at = texts.index("scores")
    assert [text.replace("\n", "") for text in texts[at : at + 3]] == ["scores", "2 × 3 × 7 × 7", "queries @ keys.mT"]


@pytest.mark.parametrize("width", [3.3, 6.9])
def test_no_text_hides_another_and_all_is_inside(ladder, width, tmp_path):
    axes = ladder.plot(width=width)
    axes.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    whole = axes.figure.bbox
    assert all(whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 <= whole.y1 for box in boxes)
    save_figure(axes, tmp_path / "trace.svg")
    assert ">weights</text>" in (tmp_path / "trace.svg").read_text()


def test_the_layer_to_ship_and_one_with_grouped_keys_are_drawn():
    layer = regard.MultiHeadAttention(d_in=8, d_out=12, context_length=None, dropout=0.0, num_heads=4, num_kv_heads=2)
    drawn = pictures(regard.trace(layer, torch.randn(1, 5, 8)).plot(head=3))
    assert {"queries", "scores", "weights", "context", "out"} <= set(drawn)
    assert drawn["weights"].shape == (5, 5)


def test_steps_without_names_are_drawn_for_the_first_text():
    linear = torch.nn.Linear(3, 2)
    t = regard.trace(linear, torch.randn(2, 5, 3))
    (drawn,) = pictures(t.plot()).values()
    np.testing.assert_array_equal(drawn, t["linear"][0].double().numpy())
    with pytest.raises(ValueError, match="text=1 and head=0 need steps that are named, and this module names none"):
        t.plot(text=1)


def test_given_axes_must_be_large_enough(ladder):
    axes = plt.figure(figsize=(7, 5), layout="constrained").add_subplot()
    assert ladder.plot(ax=axes) is axes
    small = plt.figure(figsize=(4, 3)).add_subplot()
    with pytest.raises(
        ValueError, match=r"15 steps need \d+\.\d inches of height where the Axes is 3\.1 wide, and it is 2\.3"
    ):
        ladder.plot(ax=small)


def test_heads_and_texts_that_do_not_exist_are_refused(ladder):
    with pytest.raises(ValueError, match="head=3 does not exist: this trace has 3, 0 to 2"):
        ladder.plot(head=3)
    with pytest.raises(ValueError, match="text=2 does not exist: this trace has 2, 0 to 1"):
        ladder.plot(text=2)
    with pytest.raises(ValueError, match="this trace has no steps, so there is nothing to plot"):
        regard.Trace().plot()
