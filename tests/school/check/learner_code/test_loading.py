from pathlib import Path

import pytest

from regard.school.check.learner_code.loading import load_file, split_name

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


def test_a_name_that_is_not_there_is_answered_with_those_that_are(tmp_path):
    with pytest.raises(ValueError, match=r"homework\.py has no Attn; it has Attention, Block, softmax"):
        load_file(written(tmp_path, TWO)).subjects("Attn")


def skipped(tmp_path, text):
    return [(one["line"], one["type"], one["message"]) for one in load_file(written(tmp_path, text)).skipped]


def test_a_syntax_error_has_its_line(tmp_path):
    assert skipped(tmp_path, "import torch\nclass A(\n") == [(2, "SyntaxError", "'(' was never closed")]


def test_an_error_while_importing_keeps_what_is_defined_before_and_after(tmp_path, capsys):
    text = (
        f"assert 3 == 4, 'my own test'\n{TWO}print('noise')\nimport sys; print('more', file=sys.stderr); sys.exit(0)\n"
    )
    assert skipped(tmp_path, text) == [(1, "AssertionError", "my own test"), (7, "SystemExit", "0")]
    assert load_file(written(tmp_path, text)).subjects()[0].described["name"] == "Attention"
    assert capsys.readouterr() == ("", "")


def test_what_fails_because_something_else_did_is_not_told_again(tmp_path):
    loaded = load_file(written(tmp_path, "import no_such_package as n\nx = n.f(3)\ny = x + 1\nclass A(n.B): pass\n"))
    assert [one["line"] for one in loaded.skipped] == [1, 2, 3, 4]
    assert [one["line"] for one in loaded.failures] == [1]


def test_a_file_may_import_its_neighbours(tmp_path):
    (tmp_path / "neighbour_of_homework.py").write_text("def softmax(x): return x\n")
    path = written(tmp_path, "from neighbour_of_homework import softmax\n")
    loaded = load_file(path)
    assert (loaded.skipped, loaded.own) == ([], [])
    (subject,) = loaded.subjects("softmax")
    assert (subject.described["name"], subject.file) == ("softmax", str(tmp_path / "neighbour_of_homework.py"))


def test_other_files_are_refused(tmp_path):
    for path in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(ValueError, match=r"is not a Python file or a notebook; give FILE\.py or FILE\.ipynb"):
            load_file(path)
