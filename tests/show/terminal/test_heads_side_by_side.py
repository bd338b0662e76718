"""Two heads of a report side by side."""

import pytest
import torch

import regard
from regard.heads.measure.registry import BY_NAME
from regard.show.terminal.heads import statistics_table


@pytest.fixture(scope="module")
def seen():
    model = regard.GPT.from_pretrained("tiny")
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([model.tokenizer.encode("The cat sat on the mat. The cat sat on the rug")]))
    return seen


def test_the_means_of_both_and_their_difference_the_most_different_share_first(seen):
    heads = [(4, 3), (0, 2)]
    lines = statistics_table(seen, heads).split("\n\n")[0].splitlines()
    assert lines[0].split() == ["statistic", "4.3", "0.2", "difference"]
    one, two = (seen.portraits()[place] for place in heads)
    shares = {name: abs(two.shares()[name] - one.shares()[name]) for name in one.means}
    shown = [line.split() for line in lines[1:]]
    wanted = sorted(shares, key=lambda name: -shares[name])
    assert len(shown) == len(wanted)
    for (heading, x, y, difference), name in zip(shown, wanted, strict=True):
        assert heading == (BY_NAME[name].heading or name)
        assert (float(x), float(y)) == pytest.approx((one.means[name], two.means[name]), abs=5e-3)
        assert float(difference.replace("−", "-")) == pytest.approx(two.means[name] - one.means[name], abs=5e-3)


@pytest.mark.parametrize("width", [50, 80])
def test_every_statistic_is_explained_within_the_width(seen, width):
    table, legend = statistics_table(seen, [(4, 3), (0, 2)], width).split("\n\n")
    explained = [line.split()[0] for line in legend.splitlines()]
    assert explained == [line.split()[0] for line in table.splitlines()[1:]]
    assert max(map(len, legend.splitlines())) <= width
    assert ("…" in legend) == (width == 50)
