"""`make torture`: 10,000 damaged files, each of which must load or be refused by a ValueError.

Within 2 seconds of CPU time, within the file's size and 50 MB of memory, without a word on stdout or stderr, and
without a character in the message that a terminal would obey. Each part of the run has a process of its own, so that
a crash is found and reported too.

    python tests/torture_files.py --count 10000 --first 0
    python tests/torture_files.py --directories

--directories: 10,000 damaged model directories, each opened as `regard see`, `regard generate` and Python open it.
"""

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import redirect_stdout, suppress
from itertools import product
from operator import attrgetter, methodcaller
from pathlib import Path

import torch

from file_mutations import TEXT, Corpus
from regard import GPT, load_atlas, load_effects, load_seen
from regard.commands.shared.atlas_card import card
from regard.gpt.tokenizer.tokenizer import Tokenizer
from regard.heads.measure.registry import ROWS
from regard.show.terminal.heat_map import head_picture
from regard.support.drawing import as_page
from regard.support.printable import MOST_CHARACTERS, printable

SECONDS, SPARE = 2.0, 50 << 20
PART = 1000  # cases of one process
WHOLE = ("model", "directory")


def use(kind, path):
    """Load a file and do with it what people do."""
    if kind == "directory":
        from directory_mutations import use as use_directory  # needs transformers

        use_directory(path)
    elif kind == "model":
        model = GPT.from_pretrained(path)
        model(torch.zeros(1, 2, dtype=torch.long))
    elif kind == "tokenizer":
        tokenizer = Tokenizer.load(path)
        tokenizer.decode(tokenizer.encode(TEXT))
        tokenizer.pieces(range(min(tokenizer.vocab_size, 300)))
    else:
        loaded = {"seen": load_seen, "effects": load_effects, "atlas": load_atlas}[kind](path)
        with redirect_stdout(io.StringIO()):
            print(loaded)
            print(loaded.table(width=80, all=True))
            if kind == "seen" and loaded.layers:
                read_heads(loaded)
            if kind == "atlas":
                print(*(card(loaded, one.layer, one.head) for one in loaded.heads()), (loaded + loaded).table(all=True))
                as_page(loaded) if loaded.tokens else None


NAMES = ("role", "received", "received_mean", "histogram", *ROWS)
READ = (
    *(attrgetter(name) for name in NAMES),
    methodcaller("weights"),
    methodcaller("map", 3),
    methodcaller("top", 2),
    str,
    lambda head: head_picture(head, 80),
)


def read_heads(seen):
    """Everything that a report has of its first layers. What was not kept or collected is a ValueError."""
    seen.summary()
    for layer, read in product(range(min(len(seen.layers), 2)), READ):
        with suppress(ValueError):
            read(seen[layer][0])


def peak():
    """The most memory that this process has used since `reset`, and what it uses now, in bytes."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(int(status[name].split()[0]) << 10 for name in ("VmHWM", "VmRSS"))


def judge(corpus, number, folder):
    """How a case ended, and what was wrong with that; None if nothing was."""
    kind, path = corpus.damaged(number, folder)
    size = sum(one.stat().st_size for one in ([path] if path.is_file() else path.iterdir()))
    with tempfile.TemporaryFile() as said:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak
        before, start, own = peak()[1], time.process_time(), (os.dup(1), os.dup(2))
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        try:
            use(kind, path)
            ended, fault = "loaded", None
        except ValueError as error:
            message = str(error)
            ended, fault = "refused", None
            if printable(message) != message or len(message) > MOST_CHARACTERS + 100:
                fault = f"the message is not printable or too long: {message[:200]!r}"
        except BaseException as error:
            ended, fault = "failed", f"{type(error).__name__}: {error!s:.300}"
        finally:
            for number_of, kept in enumerate(own, 1):
                os.dup2(kept, number_of)
                os.close(kept)
        seconds, memory = time.process_time() - start, peak()[0] - before
        if said.seek(0, 2):
            fault = fault or f"{said.tell()} bytes were written to stdout or stderr"
    if seconds > SECONDS or memory > size + SPARE:
        fault = fault or f"{seconds:.1f} s and {memory >> 20} MB for {size:,} bytes"
    return {"number": number, "kind": kind, "ended": ended, "fault": fault, "seconds": seconds, "extra": memory - size}


def run_part(first, count, corpus):
    """Judge some cases and print a line of JSON for each."""
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        corpus = corpus(Path(folder))
        for kind, source, files in corpus.sources:  # what is imported late is no cost of a case
            with suppress(ValueError):  # not every directory is one of a GPT of ours
                use(kind, source if kind in WHOLE else source / files[0])
        for number in range(first, first + count):
            print(json.dumps({"number": number}), flush=True)
            with tempfile.TemporaryDirectory() as target:
                print(json.dumps(judge(corpus, number, target)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--part", action="store_true", help="run all in this process")
    parser.add_argument("--directories", action="store_true", help="damage whole model directories")
    told = parser.parse_args()
    if told.part:
        if told.directories:
            from directory_mutations import Directories  # needs transformers
        run_part(told.first, told.count, Directories if told.directories else Corpus)
        return 0
    cases = []
    for first in range(told.first, told.first + told.count, PART):
        count = min(PART, told.first + told.count - first)
        command = [sys.executable, __file__, "--part", "--first", str(first), "--count", str(count)]
        command += ["--directories"] * told.directories
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=3600)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        judged = [line for line in lines if "kind" in line]
        cases += judged
        if not lines:
            return done.returncode or 1
        if len(judged) < count:
            fault = f"the process ended with status {done.returncode}"
            cases.append({**lines[-1], "kind": "?", "ended": "crashed", "fault": fault, "seconds": 0.0, "extra": 0})
        for case in cases[-len(judged) - 1 :]:
            if case["fault"] and case["number"] >= first:
                print(f"  case {case['number']}, {case['kind']}: {case['fault']}", flush=True)
    counts = Counter((case["kind"], case["ended"]) for case in cases)
    for (kind, ended), n in sorted(counts.items()):
        print(f"  {kind:10} {ended:8} {n:6,}")
    faults = sum(case["fault"] is not None for case in cases)
    slowest, largest = max(case["seconds"] for case in cases), max(case["extra"] for case in cases)
    print(f"  {len(cases):,} files, {faults} faults; slowest {slowest:.2f} s, at most {largest >> 20} MB over the size")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
