"""A page in a real browser: Chromium without a network, every console message kept."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = [
    name
    for name, there in (
        ("Chromium", CHROMIUM is not None),
        ("playwright", importlib.util.find_spec("playwright") is not None),
    )
    if not there
]
# Continuous integration has both; a missing browser there must not look like a pass.
needs_chromium = pytest.mark.skipif(
    bool(MISSING) and not os.environ.get("REGARD_NEEDS_CHROMIUM"), reason=f"needs {' and '.join(MISSING)}"
)
_FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*_FLAGS, "--disable-component-update", "--hide-scrollbars"]
        )
        yield browser
        browser.close()


def address_of(tab: Any) -> str:
    """Where the tab is; playwright's own `url` is told of a change of the page's history only later."""
    return tab.evaluate("location.href")


class OpenPage:
    """A page in a tab of its own; `messages` holds everything that the console said."""

    def __init__(self, browser: Any, address: str, offline: bool = True, **options: Any) -> None:
        options.setdefault("viewport", {"width": 1440, "height": 900})
        self.context = browser.new_context(offline=offline, **options)
        self.tab = self.context.new_page()
        self.messages: list[str] = []
        self.tab.on("console", lambda message: self.messages.append(message.text))
        self.tab.on("pageerror", lambda error: self.messages.append(str(error)))
        self.open(address)

    def open(self, address: str) -> None:
        """Go there, and wait until everything is drawn."""
        self.tab.goto(address)
        self.ready()

    def ready(self, head: str | None = None) -> None:
        """Wait until a head is drawn."""
        self.tab.wait_for_selector("#regard[data-ready]" if head is None else f'#regard[data-ready="{head}"]')

    def text(self, selector: str) -> str:
        """The text of the first such element, white space joined."""
        return " ".join(self.tab.locator(selector).first.inner_text().split())

    def close(self) -> None:
        """Close the tab; nothing may have been said."""
        self.context.close()
        assert self.messages == []


@contextmanager
def opened(browser: Any, page: Path | str, hash: str = "", **options: Any) -> Iterator[OpenPage]:
    """A page that was written to this file, or the one at this address."""
    address = page.as_uri() if isinstance(page, Path) else page
    one = OpenPage(browser, f"{address}#{hash}" if hash else address, **options)
    try:
        yield one
    finally:
        one.close()


@contextmanager
def opened_html(
    html: str, folder: Path, at: str = "", width: int = 1440, height: int = 900, dark: bool = False
) -> Iterator[Any]:
    """A tab of a browser of its own, with this page at a state of its address."""
    path = folder / "page.html"
    path.write_text(html, encoding="utf-8")
    options = {"viewport": {"width": width, "height": height}, "color_scheme": "dark" if dark else "light"}
    with chromium() as browser, opened(browser, path, at, **options) as page:
        yield page.tab
