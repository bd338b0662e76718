"""Write card.pdf, the reference card on one page of A4, from card.md: `python docs/card/print.py`.

Needs Chromium, playwright and mistune, which the development environment has.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import mistune
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
STYLE = """
body { font: 9pt/1.3 system-ui, sans-serif; margin: 0 }
h1 { font-size: 15pt; margin: 0 } p { margin: 4pt 0 } a { color: inherit; text-decoration: none }
pre { font: 7.3pt/1.3 ui-monospace, monospace; background: #f5f7fa; padding: 4pt 6pt; margin: 4pt 0 }
code { font-size: 8pt } img { width: 100% }
table { border-collapse: collapse; font-size: 8pt; margin: 4pt 0 } td, th { border: 1px solid #ccd3da; padding: 1pt 6pt; text-align: left }
"""


def write_pdf(path: Path) -> None:
    """The card as a PDF."""
    text = (
        (HERE.parent / "card.md")
        .read_text(encoding="utf-8")
        .replace("To print: [card.pdf](card/card.pdf), one page of A4, also by `regard card -o card.pdf`.\n", "")
    )
    body = mistune.create_markdown(plugins=["table"])(text)
    body = body.replace("card/flow.svg", (HERE / "flow.svg").as_uri())
    page = path.with_suffix(".html")
    page.write_text(f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>{body}", encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page()
        tab.goto(page.as_uri())
        margin = {"top": "12mm", "bottom": "12mm", "left": "15mm", "right": "15mm"}
        tab.pdf(path=str(path), format="A4", margin=margin, print_background=True)
        browser.close()
    page.unlink()


if __name__ == "__main__":
    write_pdf(HERE / "card.pdf")
