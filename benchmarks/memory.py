"""The memory of one forward over a long text on the CPU, measured in a new process for each layer.

    python -m benchmarks memory --textbook

The peak memory of a process never falls, so each layer gets a new process: the peak after the forward, less the peak
after importing torch and regard. Weights, input and output are included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence

import torch

from benchmarks.harness import ROOT
from benchmarks.peers import CONTENDERS, OURS, TEXTBOOK, Shape, Weights
from benchmarks.timing import free_memory


def measure(name: str, shape: Shape, timeout: float | None = None) -> int:
    """Bytes that one forward of this contender adds to a new process, in float32."""
    size = [str(n) for n in (shape.width, shape.heads, shape.batch, shape.tokens)]
    arguments = ["benchmarks", "memory", "--child", name, *size]
    return bytes_from_process(arguments, f"{name} at T={shape.tokens}", timeout)


def bytes_from_process(arguments: Sequence[str], what: str, timeout: float | None = None) -> int:
    """Run `python -m` with the arguments in a new process, and return the bytes that it prints as JSON."""
    # -W is passed on, so that tests that turn warnings into errors see those of the child too.
    words = [sys.executable, *(f"-W{w}" for w in sys.warnoptions), "-m", *arguments]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT), *filter(None, sys.path)]))
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=environment, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["killed, probably out of memory"])[-1]
        raise RuntimeError(f"{what} ended with status {done.returncode}: {last}")
    return int(json.loads(done.stdout)["bytes"])


def estimate_textbook(shape: Shape) -> int:
    """Bytes of the textbook layer in float32: three B × H × T × T tensors, the mask, and tensors that are linear in T.

    >>> round(estimate_textbook(Shape(768, 12, 1, 16384)) / 1e9)
    39
    """
    B, H, T, E = shape.batch, shape.heads, shape.tokens, shape.width
    return 4 * (3 * B * H * T * T + 4 * B * T * E + 4 * E * E) + T * T


def main(argv: Sequence[str]) -> int:
    """Parse the command line, measure, print megabytes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks memory")
    parser.add_argument("--tokens", type=int, default=16384, help="length of the text [default: %(default)s]")
    parser.add_argument(
        "--textbook", action="store_true", help="measure the textbook layer too; estimate it where it does not fit"
    )
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.child:
        width, heads, batch, tokens = map(int, options.child[1:])
        print(json.dumps({"bytes": _forward(options.child[0], Shape(width, heads, batch, tokens))}))
        return 0
    if options.tokens <= 0:
        parser.error(f"--tokens {options.tokens} must be above 0")
    shape = Shape(768, 12, 1, options.tokens, "GPT-2 small")
    print(f"  {shape}, float32, one forward on the CPU\n")
    print(f"  {OURS:<18}{measure(OURS, shape) / 1e6:>10,.0f} MB  measured")
    if options.textbook:
        expected, available = estimate_textbook(shape), free_memory("cpu")
        if available is not None and expected < 0.8 * available:
            print(f"  {TEXTBOOK:<18}{measure(TEXTBOOK, shape) / 1e6:>10,.0f} MB  measured")
        else:
            free = "unknown" if available is None else f"{available / 1e6:,.0f} MB"
            print(f"  {TEXTBOOK:<18}{expected / 1e6:>10,.0f} MB  estimated (free memory: {free})")
    return 0


def _forward(name: str, shape: Shape) -> int:
    before = high_water()
    weights = Weights.random(shape.width, torch.float32)
    layer = CONTENDERS[name](shape, weights)
    x = torch.randn(shape.batch, shape.tokens, shape.width)
    with torch.no_grad():
        layer(x)
    return high_water() - before


def high_water() -> int:
    """The peak memory of this process so far, in bytes."""
    try:  # Linux: a new process inherits ru_maxrss from its parent, but not VmHWM
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
