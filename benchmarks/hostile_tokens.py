"""The same hostile tokens in regard's page, in BertViz and in CircuitsVis, opened in Chromium: what runs, what breaks.

    pip install bertviz circuitsvis playwright
    PYTHONPATH=src:tests/show/page python benchmarks/hostile_tokens.py [FOLDER]

BertViz loads require.js, jQuery and d3 from a CDN when it is opened. FOLDER holds them as require.min.js,
jquery.min.js and d3.min.js, to draw it without a network; without FOLDER they are fetched. Each token stands among
three harmless ones in a page of its own. "runs": the token changed the title of the page. "breaks": an error, or no
token is drawn. Control characters that are in the page as they are can reorder what stands beside them. Tools that are
not installed are left out.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from chromium import chromium

import regard
from regard.show.page.html import page_html
from regard.show.page.payload import Titled, page_data
from regard.support.tokens import TextTokens

TOKENS = {
    "</script>": "</script><script>document.title='ran'</script>",
    "<img onerror>": "<img src=x onerror=\"document.title='ran'\">",
    "JSON": '"]}\\',
    "controls": "\x00\x1b[31m\u2028",
    "bidi": "\u202egnp\u2066",
    "half a character": "\udc8c",
    "emoji": "👩‍👩‍👧",
    "empty": "",
    "1 MB": "x" * 2**20,
}
AROUND = ["one", " two", None, " three"]
WAIT = 20_000  # milliseconds until something is drawn


def attention(T: int) -> torch.Tensor:
    """(1, heads, T, T): causal weights."""
    scores = torch.randn(1, 2, T, T, generator=torch.Generator().manual_seed(7))
    return scores.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf).softmax(-1)


def of_regard(tokens: list[str]) -> str:
    """The page of regard."""
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=None, dropout=0.0, num_heads=2)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, len(tokens), 6))
    return page_html(page_data([Titled("", seen, tokens=TextTokens(tokens))]))


def of_bertviz(tokens: list[str]) -> str:
    """BertViz's view of heads."""
    from bertviz import head_view

    shown = head_view([attention(len(tokens))], tokens, html_action="return")
    return f"<!doctype html><meta charset=utf-8><body>{shown.data}</body>"


def of_circuitsvis(tokens: list[str]) -> str:
    """CircuitsVis' attention patterns, with its script in the file."""
    from circuitsvis.attention import attention_patterns

    shown = attention_patterns(tokens, attention(len(tokens))[0])
    return f"<!doctype html><meta charset=utf-8><body>{shown.local_src}</body>"


TOOLS: dict[str, tuple[Callable[[list[str]], str], str]] = {  # how each is written, and what it draws tokens as
    "regard": (of_regard, ".text .unit"),
    "bertviz": (of_bertviz, "#vis svg text, [id^=bertviz] svg text"),
    "circuitsvis": (of_circuitsvis, "[id^=circuits-vis] *"),
}


def tried(browser: Any, file: Path, drawn: str, folder: Path | None) -> str:
    """What happens when a page is opened, in words."""
    context = browser.new_context(offline=folder is not None and drawn.startswith(".text"))
    tab = context.new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error).splitlines()[0]))

    def answer(route: Any) -> None:
        name = route.request.url.rpartition("/")[2]
        if folder is not None and (folder / name).is_file():
            route.fulfill(path=folder / name, content_type="text/javascript")
        else:
            route.abort() if folder is not None else route.continue_()

    tab.route("http*://**/*", answer)
    try:
        tab.goto(file.as_uri())
        try:
            tab.wait_for_selector(drawn, state="attached", timeout=WAIT if not errors else 2000)
            tab.wait_for_timeout(500)
            count = tab.locator(drawn).count()
        except Exception:
            count = 0
        ran, text = tab.title() == "ran", "".join(tab.locator(drawn).all_text_contents())
        wide = tab.evaluate("document.documentElement.scrollWidth > innerWidth")
    finally:
        context.close()
    words = ["runs"] * ran + ["breaks: " + (errors[0] if errors else "nothing is drawn")] * (not count or bool(errors))
    words += ["control characters are in the page as they are"] * any(c in text for c in "\x1b\u202e\u2066")
    words += ["wider than the window"] * wide
    return ", ".join(words) or "shown"


def main() -> None:
    """Print a table."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    installed = {}
    for name in TOOLS:
        try:
            installed[name] = version(name) if name != "regard" else "here"
        except PackageNotFoundError:
            print(f"{name} is not installed; left out")
    with chromium() as browser, tempfile.TemporaryDirectory() as temporary:
        for name, number in installed.items():
            write, drawn = TOOLS[name]
            print(f"\n{name} {number}")
            for title, token in TOKENS.items():
                file = Path(temporary) / "page.html"
                try:
                    file.write_text(write([token if one is None else one for one in AROUND]), encoding="utf-8")
                except Exception as error:
                    print(f"  {title:18} not written: {type(error).__name__}: {str(error)[:60]}")
                    continue
                print(f"  {title:18} {tried(browser, file, drawn, folder)[:100]}", flush=True)


if __name__ == "__main__":
    main()
