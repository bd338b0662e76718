"""How fast `regard generate` is beside busy processes, compared with the same machine without them.

    python benchmarks/busy.py                    # as many busy processes as cores
    python benchmarks/busy.py --busy 2 --threads # also with one thread and with all of torch's threads

Runs alternate, alone and beside busy processes, so that what else happens on the machine happens to both; for the
figures of an idle machine, the machine must be idle. Each run is a new process that generates one text with the model
in the package and prints the tokens per second that `regard generate` reports.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

COMMAND = ["generate", "Once upon a time", "--seed", "7", "--max-new-tokens"]
START = "from regard.cli import main; main()"
# The same with torch's number of threads fixed: {} of them, for small and large work alike.
FIXED = (
    "import torch; torch.set_num_threads({}); from regard.gpt.generate import generate; "
    "generate.SMALL_STEP = generate.SMALL_PROMPT = 0; "
)


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many processes that want a core each."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def tokens_per_second(tokens: int, threads: int | None) -> float:
    """What one run reports."""
    code = START if threads is None else FIXED.format(threads) + START
    run = subprocess.run(
        [sys.executable, "-c", code, *COMMAND, str(tokens)], capture_output=True, text=True, check=True
    )
    (speed,) = re.findall(r"([\d.]+) tokens/s", run.stderr)
    return float(speed)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--busy", type=int, default=os.cpu_count(), help="busy processes [default: one per core]")
    parser.add_argument("--runs", type=int, default=5, help="runs of each kind [default: 5]")
    parser.add_argument("--tokens", type=int, default=200, help="tokens in a text [default: 200]")
    parser.add_argument("--threads", action="store_true", help="also with one thread and with all")
    arguments = parser.parse_args()
    kinds: dict[str, int | None] = {"as it is": None}
    if arguments.threads:
        kinds |= {"1 thread": 1, f"{os.cpu_count()} threads": os.cpu_count()}
    print(f"load before: {os.getloadavg()[0]:.1f} · {os.cpu_count()} cores · {arguments.busy} busy processes\n")
    print(f"  {'':12}  {'alone':>8}  {'busy':>8}  {'ratio':>6}   tokens/s, median of {arguments.runs}")
    for name, threads in kinds.items():
        alone, beside = [], []
        for _ in range(arguments.runs):
            alone.append(tokens_per_second(arguments.tokens, threads))
            with busy_processes(arguments.busy):
                beside.append(tokens_per_second(arguments.tokens, threads))
        first, second = statistics.median(alone), statistics.median(beside)
        print(f"  {name:12}  {first:8.0f}  {second:8.0f}  {second / first:6.2f}", flush=True)


if __name__ == "__main__":
    main()
