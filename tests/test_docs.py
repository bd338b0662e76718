"""The examples in docs/ run, in order, page by page; what they print is what the pages show; links lead somewhere.

A block marked `output` right after a block marked `python` is what that block prints. Pages may wrap long lines: white
space is not compared.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from readme import run_python

ROOT = Path(__file__).parent.parent
INDEX = ROOT / "docs" / "README.md"
PAGES = sorted(page for page in INDEX.parent.glob("*.md") if page != INDEX)
SLOW = {"grading.md", "cut.md", "figures.md"}  # their examples grade a class, cut every head and draw figures
LINK = r"\]\((?!https?:)([^)#]*)(#[^)]+)?\)"
EXAMPLE = r"^```python\n(.*?)^```\n(?:\n```output\n(.*?)^```\n)?"


def examples(text: str) -> list[tuple[str, str]]:
    """The python blocks of a page, each with the output shown for it, "" where there is none."""
    return re.findall(EXAMPLE, text, flags=re.DOTALL | re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The targets of a page's headings, as GitHub makes them: lower case, hyphens for spaces, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def as_parameter(page: Path) -> object:
    """A page that compiles or exports runs without run-time shape checks, which graphs cannot hold."""
    compiles = any(re.search(r"torch\.(compile|export|onnx)", code) for code, _ in examples(page.read_text()))
    # torch's own compiler and exporters use what torch deprecates.
    ignored = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning")]
    marks = [pytest.mark.compiled, *ignored] if compiles else [pytest.mark.slow] if page.name in SLOW else []
    return pytest.param(page, id=page.name, marks=marks)


@pytest.mark.parametrize("page", [as_parameter(page) for page in PAGES])
def test_every_python_example_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    blocks = examples(text)
    assert blocks
    assert text.count("```output\n") == sum(output != "" for _, output in blocks), "an output block follows no example"
    names: dict[str, object] = {}
    for code, output in blocks:
        names = run_python([code], {}, names, page.name)
        printed = capsys.readouterr().out
        if output:
            assert printed.split() == output.split(), f"{page.name}: this example prints something else:\n\n{code}"


@pytest.mark.parametrize("page", [INDEX, *PAGES], ids=lambda page: page.name)
def test_every_link_to_a_file_or_heading_leads_somewhere(page):
    for target, anchor in re.findall(LINK, page.read_text()):
        file = (page.parent / target) if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text()), target + anchor


def test_the_index_names_every_page():
    assert {page.name for page in PAGES} <= {target for target, _ in re.findall(LINK, INDEX.read_text())}


def test_an_output_block_belongs_to_the_example_right_before_it():
    text = "```python\nprint(5)\n```\n\n```output\n5\n```\n\n```python\nx = 7\n```\n\nthen\n\n```output\n7\n```\n"
    assert examples(text) == [("print(5)\n", "5\n"), ("x = 7\n", "")]


def test_anchors_are_made_of_headings_and_not_of_comments_in_code():
    assert anchors("# What `explain` says\n\n```\n# no heading\n```\n\n## Keys, values\n") == {
        "#what-explain-says",
        "#keys-values",
    }


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_alone_lists_every_target():
    listed = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    (targets,) = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert re.findall(r"^  make (\w+) +\S", listed, re.MULTILINE) == targets.split()
    assert max(map(len, listed.splitlines())) <= 80
