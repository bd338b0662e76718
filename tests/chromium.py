"""A page in a browser, for tests: skipped where playwright or Chromium is missing."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def opened(html: str, folder: Path, at: str = "", width: int = 1440, height: int = 900, dark: bool = False) -> Iterator:
    """The page, opened from a file, offline, at a state of its address; an error on it fails the test."""
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    path = folder / "page.html"
    path.write_text(html, encoding="utf-8")
    problems: list[str] = []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", offline=True
            )
            page = context.new_page()
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("console", lambda message: message.type == "error" and problems.append(message.text))
            page.goto(f"{path.as_uri()}#{at}")
            page.wait_for_selector("#regard[data-ready]")
            yield page
        finally:
            browser.close()
    assert problems == []
