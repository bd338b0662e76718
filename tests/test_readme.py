"""The README's examples run, in order, as a reader would type them."""

import doctest
import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def test_every_python_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # one of them writes a file
    names: dict[str, object] = {}
    assert len(BLOCKS) >= 5
    for block in BLOCKS:
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, names, "README", "README.md", 0)
            assert doctest.DocTestRunner(verbose=False).run(test, clear_globs=False).failed == 0
        else:
            exec(compile(block, "README.md", "exec"), names)
    assert names["out"].shape == (2, 17, 768)
    assert names["cache"].length == 17


def test_the_two_commands_are_there():
    assert "make demo" in README
    assert "make test" in README
