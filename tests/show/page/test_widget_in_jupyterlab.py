"""The widget in a real JupyterLab: twenty in one notebook draw, keep their height, and leave a small file.

Needs jupyterlab, ipykernel and anywidget in the environment of the tests, and Chromium. It takes about a minute.
"""

import importlib.util
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from chromium import chromium, needs_chromium

MISSING = [name for name in ("jupyterlab", "ipykernel", "anywidget") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    needs_chromium,
    pytest.mark.skipif(
        bool(MISSING) and not os.environ.get("REGARD_NEEDS_JUPYTERLAB"), reason=f"needs {' and '.join(MISSING)}"
    ),
]

WIDGETS = 20
SOURCE = Path(__file__).parents[3] / "src"
SETUP = """
import torch, regard

model = regard.GPT.from_pretrained("tiny")

def watched(text):
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([model.tokenizer.encode(text)]))
    return seen
"""
LAST_LINES = ["seen", "seen[4, 3]", "seen[2]", 'seen.widget("Alice")']  # what a cell can end with
TEXT = "Alice was beginning to get very tired of sitting by her sister on the bank, and "
SETTINGS = {  # every cell is in the document, also those out of sight, and widgets are saved with the notebook
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyter-widgets/jupyterlab-manager/plugin": {"saveState": True},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


def write_notebook(file):
    codes = [SETUP]
    for number in range(WIDGETS):
        codes.append(f"seen = watched({f'{number}. {TEXT * 2}'!r})\n{LAST_LINES[number % len(LAST_LINES)]}")
    cells = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "source": code, "outputs": [], "execution_count": None}
        for n, code in enumerate(codes)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    file.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": cells}))


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """JupyterLab over a folder with the notebook; gives the folder and the address of the notebook."""
    folder = tmp_path_factory.mktemp("lab")
    write_notebook(folder / "widgets.ipynb")
    for name, content in SETTINGS.items():
        file = folder / "settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(8)
    log = (folder / "lab.log").open("w")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"),
            *(f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}", "--expose-app-in-browser"),
            *(f"--LabApp.user_settings_dir={folder}/settings", f"--LabApp.workspaces_dir={folder}/workspaces"),
        ],
        stdout=log,
        stderr=subprocess.STDOUT,
        env=os.environ
        | {"PYTHONPATH": f"{SOURCE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", "JUPYTER_CONFIG_DIR": str(folder)}
        | {"IPYTHONDIR": str(folder / "ipython"), "OMP_NUM_THREADS": "1"},
    )
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api").close()
            break
        except urllib.error.URLError:
            assert process.poll() is None, (folder / "lab.log").read_text()
            time.sleep(0.2)
    yield folder, f"http://127.0.0.1:{port}/lab/tree/widgets.ipynb?token={token}"
    process.terminate()
    process.wait(timeout=30)
    log.close()


KERNEL_IS_IDLE = "() => globalThis.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
HEIGHTS = (
    "() => [...document.querySelectorAll('.jp-OutputArea .regard')].map(one => one.getBoundingClientRect().height)"
)
READY = ".jp-OutputArea .regard[data-ready]"
BLANK = """() => [...document.querySelectorAll('.jp-OutputArea .regard canvas')].filter(canvas => {
  if (!canvas.width || canvas.getBoundingClientRect().width < 1) return false;
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d');
  copy.drawImage(canvas, 0, 0);
  return !copy.getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean);
}).length"""


def test_twenty_widgets_draw_keep_their_height_and_leave_a_small_notebook(lab):
    folder, address = lab
    wide = {"width": 1400, "height": 900}
    with chromium() as browser:
        tab = browser.new_page(viewport=wide)
        errors = []
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto(address)
        tab.wait_for_function(KERNEL_IS_IDLE, timeout=120_000)  # before that, it would ask which kernel to take
        tab.evaluate("void jupyterapp.commands.execute('notebook:run-all-cells')")  # ends when the last cell has run
        tab.locator(READY).nth(WIDGETS - 1).wait_for(state="attached", timeout=240_000)
        assert tab.locator(READY).count() == WIDGETS
        assert tab.locator(".regard canvas").count() >= WIDGETS
        assert tab.evaluate(BLANK) == 0

        first = tab.evaluate(HEIGHTS)
        assert min(first) > 300
        tab.wait_for_timeout(10_000)
        assert tab.evaluate(HEIGHTS) == first
        for width in (1000, 700, 1200, 900, 1400):
            tab.set_viewport_size({"width": width, "height": 900})
            tab.wait_for_timeout(1000)
            settled = tab.evaluate(HEIGHTS)
            tab.wait_for_timeout(500)
            assert tab.evaluate(HEIGHTS) == settled
        assert settled == first

        tab.evaluate("void jupyterapp.commands.execute('docmanager:save')")
        tab.wait_for_timeout(2000)
    notebook = json.loads((folder / "widgets.ipynb").read_text())
    assert len(notebook["metadata"]["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]) >= WIDGETS
    assert (folder / "widgets.ipynb").stat().st_size < 3_000_000
    for number, cell in enumerate(notebook["cells"][1:]):
        [output] = cell["outputs"]
        kinds = {"application/vnd.jupyter.widget-view+json", "text/plain"}
        kinds.add("text/html" if LAST_LINES[number % len(LAST_LINES)] == "seen" else "image/png")
        assert output["data"].keys() == kinds  # what is shown where widgets do not run
        assert len(output["data"].get("image/png", "")) < 60_000
    assert errors == []
