"""All heads of a report in one figure."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import regard
from heads.measured import measured
from regard.heads.change.effects import Effects
from regard.heads.measure.registry import AVERAGED


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def written(axes):
    return {text.get_position(): text.get_text() for text in axes.texts}


def test_every_head_is_a_map_at_its_place(watched):
    seen = watched(T=7, heads=3, layers=2, texts=2)
    axes = seen.plot(text=1)
    assert len(axes.images) == 6
    for number, image in enumerate(axes.images):
        layer, head = divmod(number, 3)
        left, right, bottom, top = image.get_extent()
        assert head < left < right < head + 1
        assert layer < top < bottom < layer + 1
        np.testing.assert_allclose(image.get_array().data, seen[layer, head].weights()[1].numpy(), atol=1e-6)
        np.testing.assert_array_equal(image.get_array().mask, np.triu(np.ones((7, 7), dtype=bool), 1))
    assert (labels(axes.xaxis), labels(axes.yaxis)) == (["0", "1", "2"], ["0", "1"])


def test_maps_are_captioned_with_number_and_role(watched):
    seen = watched(T=7, heads=3, layers=2)
    roles = [role.name.removesuffix(" token") for layer in seen for role in layer.roles]
    expected = [f"{n // 3}.{n % 3}\n{role}" for n, role in enumerate(roles)]
    assert [text.get_text() for text in seen.plot().texts] == expected


def test_captions_of_full_maps_are_above_them(watched):
    seen = watched(T=7, heads=3, layers=2, causal=False)
    axes = seen.plot()
    for n, (text, image) in enumerate(zip(axes.texts, axes.images, strict=True)):
        assert text.get_text() == f"{n // 3}.{n % 3} {seen[n // 3, n % 3].role.name.removesuffix(' token')}"
        assert text.get_position()[1] < image.get_extent()[3]


def test_narrow_maps_have_letters_for_clear_roles_and_say_what_they_mean():
    model = regard.GPT.from_pretrained("tiny")
    ids = torch.tensor([model.tokenizer.encode("Alice saw the cat, and the cat saw Alice")])
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    *captions, note = [text.get_text() for text in seen.plot(width=3.3).texts]
    roles = [role for layer in seen for role in layer.roles]
    assert captions == [role.name[:2].capitalize() if role.clear else "" for role in roles]
    assert {part.strip()[3:] for part in note.replace("\n", "   ").split("   ")} == {r.name for r in roles if r.clear}


@pytest.mark.parametrize("by", ["entropy", "previous", "largest"])
def test_cells_are_the_means_of_the_statistic_with_the_numbers_written(watched, by):
    seen = watched(T=7, heads=3, layers=2)
    axes = seen.plot(by=by)
    means = np.array([[head[by] for head in layer.summary] for layer in seen])
    np.testing.assert_allclose(axes.collections[0].get_array(), means)
    for (x, y), text in written(axes).items():
        assert abs(float(text) - means[int(y), int(x)]) <= 0.00501
    assert len(written(axes)) == 6
    unit = {"entropy": "nats"}.get(by, "weight")
    assert axes.get_title(loc="left") == f"mean {by} ({unit})"


def test_numbers_that_do_not_fit_are_left_out(watched):
    assert list(watched(T=5, heads=31).plot(by="entropy", width=3.3).texts) == []


def test_roles_are_written_in_their_cells(watched):
    seen = watched(T=7, heads=3, layers=2)
    assert written(seen.plot(by="role")) == {
        (head + 0.5, layer + 0.5): seen[layer, head].role.name.removesuffix(" token")
        for layer in range(2)
        for head in range(3)
    }


def test_where_role_names_do_not_fit_there_are_letters_and_a_legend(watched):
    seen = watched(T=7, heads=17)
    *codes, legend = [text.get_text() for text in seen.plot(by="role", width=3.3).texts]
    assert codes == [role.name[:2].capitalize() for role in seen[0].roles]
    assert set(legend.replace("\n", "   ").split("   ")) == {
        f"{role.name[:2].capitalize()} {role.name}" for role in seen[0].roles
    }


def test_an_unknown_statistic_is_refused_with_the_list(watched):
    known = ", ".join(AVERAGED)
    with pytest.raises(ValueError, match=f"the statistic is 'entropie'; it must be one of {known}, role"):
        watched(T=5).plot(by="entropie")
    with pytest.raises(ValueError, match=f"the statistic is 'role'; it must be one of {known}$"):
        watched(T=5).plot_layers("role")


def test_a_statistic_without_values_is_refused(watched):
    with pytest.raises(
        ValueError, match="induction has no value in any head; it was not collected, or the text has no"
    ):
        watched(T=5).plot(by="induction")


def test_means_are_of_all_texts_so_that_text_does_not_apply(watched):
    with pytest.raises(ValueError, match="by='entropy' plots means over all texts, so text=0 does not apply"):
        watched(T=5).plot(by="entropy", text=0)


def test_several_forwards_are_averaged_in_cells_and_chosen_for_maps():
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=None, dropout=0.0, num_heads=2)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, 5, 6))
        layer(torch.randn(1, 7, 6))
    assert seen.plot(by="entropy").collections[0].get_array().shape == (1, 2)
    with pytest.raises(ValueError, match=r"2 forwards were seen; choose one: seen\.forwards\[0\]\.plot\(\)"):
        seen.plot()


def test_an_empty_report_is_refused():
    with pytest.raises(ValueError, match="nothing was seen yet, so there is nothing to plot"):
        regard.Seen().plot()


def test_over_layers_there_is_a_dot_for_each_head_and_a_line_through_their_means(watched):
    seen = watched(T=7, heads=3, layers=5)
    means = np.array([[head["entropy"] for head in layer.summary] for layer in seen])
    axes = seen.plot_layers("entropy")
    dots = [[layer, mean] for layer, heads in enumerate(means) for mean in heads]
    np.testing.assert_allclose(axes.collections[0].get_offsets(), dots)
    np.testing.assert_allclose(axes.lines[0].get_xydata(), np.stack([np.arange(5), means.mean(1)], 1))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("layer", "entropy (nats)")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a head", "mean of the layer"]
    assert axes.get_ylim()[0] == 0


def test_weights_over_layers_are_drawn_from_0_to_1(watched):
    assert watched(T=7, layers=2).plot_layers("largest").get_ylim() == (0, 1)


def test_every_head_is_a_cell_coloured_by_its_cost():
    all_cuts = measured()
    heads = replace(all_cuts, cuts=all_cuts.cuts[:2], changes=[one[:2] for one in all_cuts.changes])
    axes = Effects(heads).plot()
    values = axes.collections[0].get_array().reshape(2, 3)
    np.testing.assert_array_equal(values.mask, [[True, False, True], [False, True, True]])
    assert (values[0, 1], values[1, 0]) == (0.5, 2.0)
    assert sorted(text.get_text() for text in axes.texts) == ["+0.50", "+2.00"]
    assert axes.get_title(loc="left") == "growth of the loss per token (nats)"


def test_other_cuts_are_bars_the_largest_cost_first():
    axes = Effects(measured(texts=2)).plot()
    assert [bar.get_width() for bar in axes.patches] == [3.0, 0.75, 0.0, -1.5]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1.0", "0.1", "0.1+1.2", "layer 1"]
