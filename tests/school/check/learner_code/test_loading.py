from pathlib import Path

import pytest

from regard.school.check.learner_code.loading import load_file, split_name, what_to_check

LAYERS = "class Attention(torch.nn.Module): pass\nclass Block(torch.nn.Module): pass\n"
TWO = f"import torch\n{LAYERS}def softmax(x): return x\n"


def written(tmp_path, text):
    path = tmp_path / "homework.py"
    path.write_text(text)
    return path


def test_a_file_and_a_name_are_told_apart(tmp_path):
    assert split_name("a/homework.py:Attention") == (Path("a/homework.py"), "Attention")
    assert split_name("homework.py") == (Path("homework.py"), "")
    odd = tmp_path / "a:b"
    odd.write_text("")
    assert split_name(str(odd)) == (odd, "")


def test_attention_layers_are_chosen_first(tmp_path):
    loaded = load_file(written(tmp_path, TWO))
    assert [one.described["name"] for one in loaded.subjects()] == ["Attention"]
    assert loaded.subjects("softmax")[0].described["name"] == "softmax"


def test_without_layers_known_functions_are_chosen(tmp_path):
    loaded = load_file(written(tmp_path, "def softmax(x): return x\ndef helper(a, b): return a\n"))
    assert [one.described["name"] for one in loaded.subjects()] == ["softmax"]
    assert what_to_check([]) == []


def test_a_name_that_is_not_there_is_answered_with_those_that_are(tmp_path):
    with pytest.raises(ValueError, match=r"homework\.py has no Attn; it has Attention, Block, softmax"):
        load_file(written(tmp_path, TWO)).subjects("Attn")


def test_a_syntax_error_has_its_line(tmp_path):
    loaded = load_file(written(tmp_path, "import torch\nclass A(\n"))
    assert loaded.problem == "'(' was never closed (SyntaxError)"
    assert loaded.line == 2


def test_an_error_while_importing_keeps_what_was_defined(tmp_path, capsys):
    loaded = load_file(written(tmp_path, TWO + "print('noise')\nassert softmax(3) == 4, 'my own test'\n"))
    assert loaded.problem == "AssertionError: my own test"
    assert loaded.line == 6
    assert loaded.subjects()[0].described["name"] == "Attention"
    assert capsys.readouterr().out == ""


def test_leaving_the_interpreter_is_an_error_too(tmp_path):
    assert load_file(written(tmp_path, "import sys\nsys.exit(0)\n")).problem == "SystemExit: 0"


def test_a_file_may_import_its_neighbours(tmp_path):
    (tmp_path / "neighbour_of_homework.py").write_text("x = 3\n")
    assert load_file(written(tmp_path, "from neighbour_of_homework import x\n")).problem == ""


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="is not a Python file"):
        load_file(tmp_path)
    (tmp_path / "latin.py").write_bytes(b"# \xe9\n")
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        load_file(tmp_path / "latin.py")
