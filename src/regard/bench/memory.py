"""The memory of one forward over a long text on the CPU, measured in a process of its own.

    python -m regard.bench.memory
    python -m regard.bench.memory --textbook

A process's high-water mark never falls, so each layer gets a fresh one: the mark after the forward, less the mark
after importing torch and regard. Weights, input and output are part of it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence

import torch

from regard.bench.peers import CONTENDERS, OURS, TEXTBOOK, Shape, Weights
from regard.bench.timing import free_memory

TOKENS = 16384


def measure(name: str, shape: Shape, timeout: float | None = None) -> int:
    """Bytes that one forward of this contender adds to a fresh process, in float32."""
    size = [str(n) for n in (shape.width, shape.heads, shape.batch, shape.tokens)]
    # -W is passed on, so that tests that turn warnings into errors see those of the child too.
    words = [sys.executable, *(f"-W{w}" for w in sys.warnoptions), "-m", "regard.bench.memory", "--child", name, *size]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=environment, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["killed, probably for want of memory"])[-1]
        raise RuntimeError(f"{name} at T={shape.tokens} ended with status {done.returncode}: {last}")
    return int(json.loads(done.stdout)["bytes"])


def estimate_textbook(shape: Shape) -> int:
    """Bytes of the textbook layer in float32: three B × H × T × T at once, the mask, and what is linear in T.

    >>> round(estimate_textbook(Shape(768, 12, 1, 16384)) / 1e9)
    39
    """
    B, H, T, E = shape.batch, shape.heads, shape.tokens, shape.width
    return 4 * (3 * B * H * T * T + 4 * B * T * E + 4 * E * E) + T * T


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line, measure, print megabytes."""
    parser = argparse.ArgumentParser(
        prog="python -m regard.bench.memory",
        description="Memory of one forward of one GPT-2 small layer, float32, CPU.",
    )
    parser.add_argument("--tokens", type=int, default=TOKENS, help=f"default {TOKENS}")
    parser.add_argument("--textbook", action="store_true", help="the textbook layer too, if it fits; else estimated")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    told = parser.parse_args(argv)
    if told.child:
        name, *size = told.child
        width, heads, batch, tokens = (int(n) for n in size)
        print(json.dumps({"bytes": _forward(name, Shape(width, heads, batch, tokens))}))
        return 0
    shape = Shape(768, 12, 1, told.tokens, "GPT-2 small")
    print(f"  {shape}, float32, one forward on the CPU\n")
    print(f"  {OURS:<18}{measure(OURS, shape) / 1e6:>10,.0f} MB  measured")
    if told.textbook:
        expected, room = estimate_textbook(shape), free_memory("cpu")
        if room is not None and expected < 0.8 * room:
            print(f"  {TEXTBOOK:<18}{measure(TEXTBOOK, shape) / 1e6:>10,.0f} MB  measured")
        else:
            free = "unknown" if room is None else f"{room / 1e6:,.0f} MB"
            print(f"  {TEXTBOOK:<18}{expected / 1e6:>10,.0f} MB  estimated (free memory: {free})")
    return 0


def _forward(name: str, shape: Shape) -> int:
    before = _high_water()
    weights = Weights.random(shape.width, torch.float32)
    layer = CONTENDERS[name](shape, weights)
    x = torch.randn(shape.batch, shape.tokens, shape.width)
    with torch.no_grad():
        layer(x)
    return _high_water() - before


def _high_water() -> int:
    """The most memory that this process ever held, in bytes."""
    try:  # Linux: ru_maxrss is inherited from the process that started this one; VmHWM is not
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    sys.exit(main())
