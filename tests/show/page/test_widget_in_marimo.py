"""The widget in a real marimo: a report and a head as the last line of a cell draw, in the theme of the notebook.

Needs marimo and anywidget in the environment of the tests, and Chromium.
"""

import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from chromium import chromium, needs_chromium

MISSING = [name for name in ("marimo", "anywidget") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    needs_chromium,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}"),
]

SOURCE = Path(__file__).parents[3] / "src"
NOTEBOOK = """
import marimo
app = marimo.App()

@app.cell
def _():
    import torch, regard
    model = regard.GPT.from_pretrained("tiny")
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([model.tokenizer.encode("The cat sat on the mat, and the cat slept.")]))
    seen
    return model, regard, seen, torch

@app.cell
def _(seen):
    seen[4, 3]
    return

@app.cell
def _(model, regard, torch):
    with torch.no_grad(), regard.watch(model, keep=False) as unkept:
        model(torch.tensor([[5, 6, 7]]))
    unkept
    return
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """marimo with the notebook above, as an app."""
    folder = tmp_path_factory.mktemp("marimo")
    (folder / "app.py").write_text(NOTEBOOK)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (folder / "marimo.log").open("w")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "marimo", "run", str(folder / "app.py"), "--headless", "--no-token"),
            *("--host", "127.0.0.1", "--port", str(port)),
        ],
        stdout=log,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONPATH": f"{SOURCE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", "HOME": str(folder)},
    )
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health").close()
            break
        except urllib.error.URLError:
            assert process.poll() is None, (folder / "marimo.log").read_text()
            time.sleep(0.2)
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait(timeout=30)
    log.close()


def test_a_report_and_a_head_draw_in_the_theme_of_the_notebook(address):
    with chromium() as browser:
        tab = browser.new_page(color_scheme="dark")  # the system's; a marimo app is light unless it says otherwise
        errors = []
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto(address)
        tab.locator(".regard[data-ready]").nth(1).wait_for(state="attached", timeout=120_000)
        assert tab.locator(".regard[data-ready]").count() == 2
        assert tab.locator('.regard[data-ready][data-theme="light"]').count() == 2
        assert tab.locator('.regard[data-ready="4.3"]').count() >= 1
        # Nothing was kept to compute weights from: the table, and why.
        tab.get_by_text("Without a widget: the page needs the queries and keys").wait_for(timeout=60_000)
        assert tab.get_by_role("cell", name="2.1", exact=True).count() == 1
        assert errors == []
