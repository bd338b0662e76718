"""The examples in docs/ run, in order, page by page. Those with >>> print what the page says."""

import doctest
import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parent.parent / "docs").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_example_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        if ">>>" in block:
            example = doctest.DocTestParser().get_doctest(block, names, page.name, page.name, 0)
            failed = (
                doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
                .run(example, clear_globs=False)
                .failed
            )
            assert not failed, capsys.readouterr().out
            names = example.globs
        else:
            exec(compile(block, page.name, "exec"), names)
    capsys.readouterr()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
