"""`python -m benchmarks NAME [OPTIONS]`, run in a clone of the repository."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

BENCHMARKS = {  # name: module, and what it measures
    "layer": ("benchmarks.layer", "Time one attention layer against other libraries' layers."),
    "memory": ("benchmarks.memory", "Measure the memory of one layer over a long text, on the CPU."),
    "watch": ("benchmarks.watch", "Time watched attention and models against unwatched ones."),
    "atlas": ("benchmarks.atlas", "Time an atlas of a corpus against the unwatched forwards."),
    "cut": ("benchmarks.cut", "Time a model with a head switched off against TransformerLens."),
    "written": ("benchmarks.written", "Compare and time what heads write, and attribution, with TransformerLens."),
    "generate": ("benchmarks.generate", "Time text generation against transformers."),
    "train": ("benchmarks.train", "Time a training step against transformers' GPT-2."),
    "check": ("benchmarks.check.run", "Put known mistakes into right layers, and count how many `regard check` names."),
}


def main(argv: Sequence[str]) -> int:
    """Run the benchmark that the first argument names."""
    name = argv[0] if argv else "--help"
    if name in BENCHMARKS:
        return int(import_module(BENCHMARKS[name][0]).main(list(argv[1:])))
    print("Usage: python -m benchmarks NAME [OPTIONS]\n")
    for known, (_, description) in BENCHMARKS.items():
        print(f"  {known:10}{description}")
    print("\n  python -m benchmarks NAME --help lists the options of each.")
    if name in ("-h", "--help"):
        return 0
    print(f"\nthere is no benchmark {name}; choose one of {', '.join(BENCHMARKS)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
