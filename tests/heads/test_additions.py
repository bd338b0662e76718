"""What an addition touches: a statistic and a mask kind that no other module knows work everywhere."""

import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from heads import dense
from heads.reports import seen_of
from regard.attention.mask_algebra import MAKERS, Mask, makes
from regard.attention.masks import causal
from regard.heads.calls.visibility import queries_per_key, visible_key_counts
from regard.heads.measure import statistics
from regard.heads.report.record import call_in_order
from regard.heads.report.report import load_seen

ORDER = torch.tensor([1, 1, 0])


@dataclass(frozen=True, repr=False, eq=False)
class Every(Mask):
    """Keys at multiples of `step`."""

    step: int

    def tile(self, rows, cols, shift):
        return (cols % self.step == 0).expand(len(rows), -1)


@dataclass(frozen=True, repr=False, eq=False)
class Up(Mask):
    """Keys up to a limit of each text, (B,)."""

    to: Tensor

    def tile(self, rows, cols, shift):
        return (cols <= self.to[:, None])[:, None, None].expand(-1, 1, len(rows), -1)


@pytest.fixture
def every():
    """The function that makes the kind, registered as one of masks.py is."""

    @makes(Every)
    def make(step):
        if step < 1:
            raise ValueError(f"step ({step}) must be at least 1")
        return Every(step)

    yield make
    del MAKERS["every"], Every.file_kind


@pytest.mark.parametrize("mask", [Every(2), causal() & Every(3), Up(torch.tensor([2, 4, 3]))], ids=lambda m: m.kind)
def test_a_new_mask_kind_is_measured_saved_reordered_and_drawn(mask, every, tmp_path):
    call = dense.random_call(B=3, T=5, mask=mask)
    names = frozenset({"entropy", "received_mean", "sink"})
    for name, value in dense.measure(call, names).items():
        measured = statistics.measure(call, names)[name].double()
        torch.testing.assert_close(measured, value, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert torch.equal(visible_key_counts(call)[0].expand(3, 3, 5).int(), dense.visible(call).sum(-1).int())
    assert torch.equal(queries_per_key(call).expand(3, 3, 5), dense.visible(call).sum(2))

    seen = seen_of(call)
    seen.save(tmp_path / "seen.safetensors")
    again = load_seen(tmp_path / "seen.safetensors")
    assert torch.equal(again[0].weights(), seen[0].weights())
    kept = again[0].record.call(0).attention.mask
    assert kept.name == ("dense(3, 1, 5, 5)" if isinstance(mask, Up) else mask.name)  # only Every has a function
    reordered = call_in_order(call, ORDER).attention.mask.dense(5)
    assert torch.equal(reordered.expand(3, 1, 5, 5), mask.dense(5).expand(3, 1, 5, 5)[ORDER])
    assert repr(mask).startswith(f"{mask.name}    ■ may attend")


def test_a_file_cannot_make_a_new_mask_kind_of_values_that_its_function_refuses(every, tmp_path):
    seen_of(dense.random_call(mask=Every(0x7A))).save(tmp_path / "seen")
    content = (tmp_path / "seen").read_bytes()
    assert b'\\"step\\": 122' in content
    (tmp_path / "seen").write_bytes(content.replace(b'\\"step\\": 122', b'\\"step\\": 000').replace(b": 000", b":   0"))
    with pytest.raises(ValueError, match=r"step \(0\) must be at least 1"):
        load_seen(tmp_path / "seen")


TWO_STATISTICS = '''
import sys
from importlib.util import find_spec, module_from_spec

NEW = """STATISTICS = (
    Statistic("second", "p on the second key", "weight", "The weight on the second key.", averaged=True,
              target=Target(Start.FIRST, +1), heading="second", legend="weight on the second token", compared=True),
    Statistic("smallest", "the smallest p", "weight", "The smallest weight of each query.", averaged=True),
"""
HOW = """BY_HEAD = {
    "smallest": lambda call, lse, head: (weights(call, lse, head, *map(torch.arange, call.sizes[2:])).amin(-1),),
"""


def import_changed(name, old, new):
    """The module as it would be with this text in its file."""
    spec = find_spec(name)
    source = open(spec.origin).read()
    assert source.count(old) == 1
    sys.modules[name] = module = module_from_spec(spec)
    exec(compile(source.replace(old, new), spec.origin, "exec"), module.__dict__)


import_changed("regard.heads.measure.registry", "STATISTICS = (\\n", NEW)
import_changed("regard.heads.measure.on_demand", ON_DEMAND, HOW)
import torch, regard

layer = regard.MultiHeadAttention(d_in=8, d_out=8, context_length=16, dropout=0.0, num_heads=2)
x = torch.randn(3, 5, 8)
with regard.watch(layer, collect=("default", "second", "smallest")) as seen:
    layer(x)
seen.save(sys.argv[1])
seen = regard.load_seen(sys.argv[1])
weights = seen[0].weights()
torch.testing.assert_close(seen[0].second, weights[..., 1])
torch.testing.assert_close(seen[0].smallest, weights.amin(-1))
torch.testing.assert_close(seen[0, 1].summary["second"], float(weights[:, 1, :, 1].mean()))
assert "second" in seen.table(width=160) and "second" in seen.compare(seen).table(width=160)
assert len(seen.heads(by="smallest")) == 2 and "smallest" in repr(seen[0, 0])
'''


def test_a_new_statistic_is_measured_saved_and_drawn_with_two_files_changed(tmp_path):
    old = "BY_HEAD: dict[str, Callable[[WatchedCall, Tensor, int], tuple[Tensor, ...]]] = {\n"
    code = TWO_STATISTICS.replace("ON_DEMAND", repr(old))
    result = subprocess.run([sys.executable, "-c", code, tmp_path / "seen"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
