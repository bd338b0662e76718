"""The numbers of the views Layer and Flow: the page's are those of Python, for whole matrices."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import regard

DATA = Path(regard.__file__).parent / "show" / "page" / "js" / "data"
COMPUTE = """
Promise.all(["layer-sums", "routes", "page-data"].map((name) => import(process.argv[1] + "/" + name + ".js"))).then(
  async ([{ sumsOf, layerMeans }, { routes, sources }, { Weights }]) => {
    const { layers, T, end, start } = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
    const all = layers.map((heads) => heads.map((one) => new Weights(T, T, Float32Array.from(one, (w) => w ?? NaN))));
    const page = { reports: [{ layers: all.map((heads) => ({ heads })) }] };
    const reports = { page, weights: async (_, layer, head) => all[layer][head] };
    const means = await layerMeans(reports, 0, [...all.keys()], null);
    const sums = all.map((heads) => sumsOf(heads, null));
    console.log(JSON.stringify({
      mean: sums.map((one) => Array.from(one.mean.values, (w) => (w === w ? w : null))),
      shares: sums.map((one) => one.shares.map((row) => [...row])),
      ratios: sums.map((one) => one.ratios.map((row) => [...row])),
      by: means.map((one) => [...one.by]),
      rollout: [...sources(means, end, "mean")],
      routes: ["heads", "mean"].map((by) => routes(means, start, end, 6, by)),
    }));
  },
);
"""


@pytest.fixture(scope="module")
def both():
    """A report of causal layers, one with heads that differ, and what the page computes of it."""
    if shutil.which("node") is None:
        pytest.skip("needs node")
    torch.manual_seed(3)
    model = torch.nn.Sequential(*(regard.MultiHeadAttention(15, 15, None, 0.0, 3) for _ in range(5))).eval()
    with torch.no_grad(), regard.watch(model) as seen:
        model(4 * torch.randn(1, 11, 15))
    layers = []
    for view in seen:
        hidden = ~view.visible()[0].bool()
        layers.append([[None if h else w for w, h in zip(one.flatten().tolist(), hide.flatten().tolist(), strict=True)]
                       for one, hide in zip(view.weights()[0], hidden, strict=True)])  # fmt: skip
    given = json.dumps({"layers": layers, "T": 11, "start": 2, "end": 9})
    command = ["node", "-e", COMPUTE, DATA.as_uri()]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    return seen, json.loads(done.stdout)


def test_the_mean_of_the_heads_is_that_of_the_report(both):
    seen, page = both
    for view, mean in zip(seen, page["mean"], strict=True):
        shown = torch.tensor([float("nan") if one is None else one for one in mean]).view(11, 11)
        assert torch.equal(shown.isnan(), torch.ones(11, 11, dtype=torch.bool).triu(1))
        torch.testing.assert_close(shown.nan_to_num(0), view.weights()[0].mean(0))


def test_shares_and_ratios_are_of_what_each_token_receives(both):
    seen, page = both
    uniform = torch.ones(11, 11).tril() / torch.arange(1, 12)[:, None]
    for view, shares, ratios in zip(seen, page["shares"], page["ratios"], strict=True):
        received = torch.cat([view.received[0], view.received[0].mean(0, keepdim=True)])
        torch.testing.assert_close(torch.tensor(shares), received / 11)
        torch.testing.assert_close(torch.tensor(ratios), received / uniform.sum(0))


def test_the_head_that_gives_most_is_that_of_the_report(both):
    seen, page = both
    for view, by in zip(seen, page["by"], strict=True):
        most = view.weights()[0].argmax(0)
        lower = torch.ones(11, 11, dtype=torch.bool).tril()
        assert torch.equal(torch.tensor(by).view(11, 11)[lower], most[lower])


def test_sources_are_the_rollout(both):
    seen, page = both
    torch.testing.assert_close(torch.tensor(page["rollout"]), seen.rollout(9)[0, 0])


def test_routes_are_those_of_python(both):
    seen, page = both
    for by, found in zip(("heads", "mean"), page["routes"], strict=True):
        wanted = regard.routes(seen, 2, 9, by=by)
        assert [tuple(one["tokens"]) for one in found] == [one.tokens for one in wanted]
        for one, other in zip(found, wanted, strict=True):
            assert one["strength"] == pytest.approx(other.strength, rel=1e-5)
            assert one["share"] == pytest.approx(other.share or 0, rel=1e-5)
