"""The submission's process: loading a submission, and describing what it raised."""

import sys

import pytest

from regard.school.sandbox.child import NothingOfRegard, describe_failure, load_submission


@pytest.fixture(autouse=True)
def _modules_as_before(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = dict(sys.modules)
    yield
    for name in set(sys.modules) - set(before):
        del sys.modules[name]


def failure(path, stage="run", entry=None):
    try:
        load_submission(str(path), entry, alone=True)
    except BaseException as error:
        return describe_failure(error, stage, str(path))
    raise AssertionError("it did not fail")


@pytest.mark.parametrize(("file", "name"), [("homework.py", "homework"), ("torch.py", "submission"), ("my-layer.py",
"submission"), ("json.py", "submission")])  # fmt: skip
def test_a_submission_hides_no_module_that_it_has_the_name_of(tmp_path, file, name):
    (tmp_path / file).write_text("x = 7")
    module = load_submission(str(tmp_path / file), None, alone=True)
    assert (module.x, module.__name__) == (7, name)
    assert sys.modules[name] is module


def test_a_file_alone_cannot_import_its_neighbours(tmp_path):
    (tmp_path / "homework.py").write_text("import neighbour_of_a_submission")
    (tmp_path / "neighbour_of_a_submission.py").write_text("")
    assert failure(tmp_path / "homework.py")["type"] == "ModuleNotFoundError"
    load_submission(str(tmp_path / "homework.py"), None, alone=False)


def test_the_files_of_a_folder_import_each_other(tmp_path):
    (tmp_path / "main_file.py").write_text("from helper_file import x")
    (tmp_path / "helper_file.py").write_text("x = 11")
    assert load_submission(str(tmp_path), "main_file.py", alone=True).x == 11


def test_a_failure_names_the_lines_of_the_submission_only(tmp_path):
    path = tmp_path / "homework.py"
    path.write_text("import json\n\ndef g():\n    json.loads('{')\n\ng()\n")
    found = failure(path, "load")
    assert found["type"] == "JSONDecodeError"
    assert found["lines"] == [["homework.py", 6, "<module>"], ["homework.py", 4, "g"]]


def test_an_error_of_syntax_has_its_line_and_message(tmp_path):
    path = tmp_path / "homework.py"
    path.write_text("x = 1\ndef f(x) return x\n")
    found = failure(path)
    assert (found["type"], found["lines"]) == ("SyntaxError", [["homework.py", 2, ""]])
    assert found["message"] == "expected ':'"


def test_a_file_of_a_folder_is_named_by_its_path_in_it(tmp_path):
    (tmp_path / "main_file.py").write_text("import parts_of_it.one")
    (tmp_path / "parts_of_it").mkdir()
    (tmp_path / "parts_of_it" / "one.py").write_text("\n1 / 0")
    found = failure(tmp_path, entry="main_file.py")
    assert found["lines"] == [["main_file.py", 1, "<module>"], ["parts_of_it/one.py", 2, "<module>"]]


def test_a_deep_recursion_keeps_the_first_and_the_last_lines(tmp_path):
    path = tmp_path / "homework.py"
    path.write_text("def f(x):\n    return f(x)\n\nf(7)\n")
    found = failure(path)
    assert (found["type"], len(found["lines"])) == ("RecursionError", 40)
    assert found["lines"][0] == ["homework.py", 4, "<module>"]


def test_an_exception_that_cannot_be_printed_is_described_all_the_same(tmp_path):
    path = tmp_path / "homework.py"
    path.write_text("class E(Exception):\n    def __str__(self):\n        raise KeyError\nraise E")
    assert failure(path)["message"] == "its message could not be read"


def test_torchs_lack_of_memory_is_a_memory_error():
    error = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 7 bytes")
    assert describe_failure(error, "run", "homework.py")["type"] == "MemoryError"


def test_importing_regard_says_why_not():
    finder = NothingOfRegard()
    assert finder.find_spec("regardless") is None
    with pytest.raises(ImportError, match="regard cannot be imported here: a submission is checked without it"):
        finder.find_spec("regard.attention")
