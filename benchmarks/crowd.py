"""`regard serve` under a crowd: what is answered, and how much memory the server takes.

    python benchmarks/crowd.py                  # 200 requests at once, then 2,000 by eight clients
    python benchmarks/crowd.py --requests 200

Over loopback only. The server is a process of its own; its memory is its resident set, as Linux reports it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

START = "from regard.cli import main; main()"
WORDS = [
    "The",
    "cat",
    "sat",
    "on",
    "the",
    "mat",
    "and",
    "the",
    "old",
    "man",
    "walked",
    "slowly",
    "down",
    "to",
    "the",
    "harbour",
    "where",
    "three",
    "ships",
    "lay",
]


def ask(address: str, text: str) -> str:
    """The status of an answer, and with 503 the time that it states."""
    body = json.dumps({"text": text}).encode()
    question = urllib.request.Request(address + "api/see", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(question, timeout=300) as answer:
            answer.read()
            return str(answer.status)
    except urllib.error.HTTPError as error:
        return f"{error.code}" + (", with a time" if error.headers["Retry-After"] else "")


def megabytes(pid: int) -> float:
    """The resident memory of a process."""
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) / 1024


def at_once(calls: list[Callable[[], str]]) -> Counter[str]:
    """The results of calls that begin together, counted."""
    barrier = threading.Barrier(len(calls))

    def begin(call: Callable[[], str]) -> str:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return Counter(pool.map(begin, calls))


def main() -> None:
    """Measure, and print a line for each crowd."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=2000, help="requests in the long run [default: 2000]")
    requests = parser.parse_args().requests
    command = [sys.executable, "-c", START, "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            address = next(line.strip() for line in server.stdout if "http://" in line)

            def show(what: str, answers: Counter[str]) -> None:
                counted = " · ".join(f"{n} × {status}" for status, n in sorted(answers.items()))
                print(f"  {what:34}{counted:28}{megabytes(server.pid):6.0f} MB", flush=True)

            def texts(count: int, different: int, begin: str) -> list[Callable[[], str]]:
                return [partial(ask, address, f"{begin} {n % different} {' '.join(WORDS)}") for n in range(count)]

            show("one request", Counter([ask(address, "The cat")]))
            show("200 at once, ten texts", at_once(texts(200, 10, "ten")))
            show("200 at once, 200 texts", at_once(texts(200, 200, "all")))
            for done in range(0, requests, 500):
                with ThreadPoolExecutor(8) as pool:
                    few = texts(min(500, requests - done), 50, "long")
                    show(f"{done + len(few)} requests, 50 texts", Counter(pool.map(lambda call: call(), few)))
        finally:
            server.kill()


if __name__ == "__main__":
    main()
