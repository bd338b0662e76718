"""The colours of figures and pictures are those of the page."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.show.palette import POWER, SIGNED, WEIGHTS, amounts_of_light, palette

COLOR_JS = Path(regard.__file__).parent / "show" / "page" / "js" / "draw" / "color.js"


def page_colors(block):
    return {float(at): color for at, color in re.findall(r"\[?(-?[\d.]+)\]?: \"(#\w{6})\"", block)}


def test_anchors_are_those_of_the_page():
    script = COLOR_JS.read_text()
    assert f"const POWER = {POWER};" in script
    assert page_colors(re.search(r"ANCHORS = \{\s*light: \{(.*?)\}", script, re.DOTALL)[1]) == WEIGHTS
    assert page_colors(re.search(r"SIGNED = \{\s*light: \{(.*?)\}", script, re.DOTALL)[1]) == SIGNED


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_colors_between_anchors_are_those_of_the_page():
    code = (
        "import(process.argv[1]).then(({ weightColor }) => console.log(JSON.stringify("
        "Array.from({ length: 255 }, (_, i) => weightColor((i / 254) ** (1 / 0.6), 'light')))))"
    )
    done = subprocess.run(["node", "-e", code, COLOR_JS.as_uri()], capture_output=True, text=True, check=True)
    page = np.array(json.loads(done.stdout))
    assert abs(page - np.rint(255 * palette(WEIGHTS, 255))).max() <= 3  # the page rounds to 256 steps


def test_light_of_black_and_white_is_0_and_1():
    assert amounts_of_light(np.array([0.0, 1.0])).tolist() == [0.0, 1.0]
