"""Measure the page that runs its model, in Chromium: opening, typing, writing, memory; plain beside WebAssembly.

    PYTHONPATH=src python benchmarks/live_page.py [SECONDS of use, 60] [SECONDS of looking after each line, 8]

Medians in milliseconds, from the keystroke to the frame after the view is drawn. The load of the machine is printed:
with other work beside it, all times are too long.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import regard
from regard.show.page.live import live_page

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "show" / "page"))
from chromium import chromium

KINDS = {"WebAssembly": "", "plain": "?plain=1"}
TEXT = (
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: once or "
    "twice she had peeped into the book her sister was reading, but it had no pictures or conversations in it, “and "
    "what is the use of a book,” thought Alice “without pictures or conversations?”"
)
SIZES = (16, 64)
TIMES = 15
KEYSTROKE, PAUSE = 150, 30  # milliseconds between two letters; seconds after all
# One keystroke: the last letter is typed again and again, so that a token or two change.
TYPE = """async (text) => {
  const box = document.querySelector(".live textarea"), root = document.getElementById("regard");
  delete root.dataset.ready;
  const start = performance.now();
  const drawn = new Promise((done) => {
    const observer = new MutationObserver(() => {
      if (root.dataset.ready === undefined) return;
      observer.disconnect();
      done();
    });
    observer.observe(root, { attributes: true, attributeFilter: ["data-ready"] });
  });
  box.value = text;
  box.dispatchEvent(new InputEvent("input"));
  await drawn;
  await new Promise(requestAnimationFrame);
  await new Promise((done) => setTimeout(done));
  return performance.now() - start;
}"""
WRITE = """async () => {
  const button = document.querySelector(".write"), board = document.querySelector(".board");
  const count = () => Number(document.querySelector(".meta").textContent.match(/(\\d+) tokens/)[1]);
  const before = count();
  document.querySelector('.writer [data-pause="0"]').click(); // as fast as it can
  const start = performance.now();
  button.click();
  await new Promise((done) => {
    const observer = new MutationObserver(() => board.hidden && (observer.disconnect(), done()));
    observer.observe(board, { attributes: true, attributeFilter: ["hidden"] });
    setTimeout(() => board.hidden && done(), 60000);
  });
  return (1000 * (count() - before)) / (performance.now() - start);
}"""


def memory(pid: int) -> float:
    """MB of the largest tab of a browser below this process, shared pages divided among those that share them."""
    largest, wanted = 0.0, {pid}
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
    while more := {child for child, parent in parents.items() if parent in wanted} - wanted:
        wanted |= more
    for one in wanted:
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            command = Path(f"/proc/{one}/cmdline").read_text()
        except OSError:
            continue
        if "--type=renderer" in command:
            largest = max(largest, next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000)
    return largest


def shortened(model: regard.GPT, tokens: int) -> str:
    assert model.tokenizer is not None
    return model.tokenizer.decode(model.tokenizer.encode(TEXT)[:tokens])


def measure(browser: Any, model: regard.GPT, address: str, seconds: float, look: float) -> dict[str, float]:
    found: dict[str, float] = {}
    tab = browser.new_context(offline=True, viewport={"width": 1440, "height": 900}).new_page()
    opened = []
    for _ in range(3):
        tab.goto("about:blank")
        start = time.perf_counter()
        tab.goto(address)
        tab.wait_for_selector("#regard[data-ready]")
        opened.append(1000 * (time.perf_counter() - start))
    found["opens, ms"] = statistics.median(opened)
    for tokens in SIZES:
        text = shortened(model, tokens)
        times = [tab.evaluate(TYPE, f"{text[:-1]}{'ab'[i % 2]}") for i in range(TIMES)]
        found[f"{tokens} tokens after a keystroke, ms"] = statistics.median(times)
        changed = [tab.evaluate(TYPE, f"{'AB'[i % 2]}{text[1:]}") for i in range(TIMES)]
        found[f"{tokens} tokens, all new, ms"] = statistics.median(changed)
    rates = []
    for _ in range(3):
        tab.evaluate(TYPE, shortened(model, 16))
        rates.append(tab.evaluate(WRITE))
    found["tokens a second while the page draws"] = statistics.median(rates)
    end = time.monotonic() + seconds
    while time.monotonic() < end:  # typing as fast as a person can, writing, and looking at what it shows
        for tokens in range(3, 65, 7):
            tab.evaluate(TYPE, shortened(model, tokens))
            tab.wait_for_timeout(KEYSTROKE)
        tab.evaluate(WRITE)
        tab.wait_for_timeout(1000 * look)
    return found


def main() -> None:
    seconds, look = (float(sys.argv[at]) if len(sys.argv) > at else value for at, value in ((1, 60.0), (2, 8.0)))
    model = regard.GPT.from_pretrained("tiny")
    content = live_page(model, "tiny").html()
    print(f"file: {len(content.encode()) / 1e6:.1f} MB; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    results = {}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "live.html"
        path.write_text(content, encoding="utf-8")
        for kind, search in KINDS.items():
            with chromium() as browser:
                results[kind] = measure(browser, model, f"{path.as_uri()}{search}#view=head", seconds, look)
                results[kind][f"MB of the tab after {seconds:.0f} s of use"] = memory(os.getpid())
                time.sleep(PAUSE)  # what is no longer used goes in a pause
                results[kind][f"MB of the tab {PAUSE} s later"] = memory(os.getpid())
    print(f"{'':44}" + "".join(f"{kind:>14}" for kind in results))
    for name in results["WebAssembly"]:
        print(f"{name:44}" + "".join(f"{one[name]:14.0f}" for one in results.values()))
    print(f"load at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
