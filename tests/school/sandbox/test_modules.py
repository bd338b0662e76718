import sys

import pytest

from regard.school.sandbox.modules import SKIPPED, load_module, neighbours


def loaded(path, source):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    with neighbours(str(path)):
        return load_module("a_learners_module", source, str(path))


@pytest.fixture(autouse=True)
def _modules_as_before():
    path, finders, modules = list(sys.path), list(sys.meta_path), dict(sys.modules)
    yield
    sys.modules.pop("a_learners_module", None)
    sys.modules.pop("files_beside_it", None)
    assert (sys.path, sys.meta_path) == (path, finders)
    assert [name for name in sys.modules if name not in modules and "_file" in name] == []


def test_a_neighbour_is_imported_by_its_name_and_forgotten_afterwards(tmp_path):
    (tmp_path / "helper_file.py").write_text("def f(): return 7\n")
    assert loaded(tmp_path / "main.py", "from helper_file import f\nx = f()").x == 7
    assert "helper_file" not in sys.modules


def test_a_neighbour_that_fails_at_its_bottom_is_imported_all_the_same(tmp_path):
    (tmp_path / "data_file.py").write_bytes(
        b"# \xe9t\xe9\nx = 7\ndata = open('no such file').read()\nclass A: size = x\n"
    )
    module = loaded(tmp_path / "main.py", "from data_file import A, x")
    assert (module.x, module.A.size, vars(module)[SKIPPED]) == (7, 7, [])


def test_relative_imports_are_from_the_folder_of_the_file(tmp_path):
    (tmp_path / "one_file.py").write_text("from .two_file import y\n")
    (tmp_path / "two_file.py").write_text("y = 3\n")
    assert loaded(tmp_path / "main.py", "from .one_file import y\nfrom . import two_file").y == 3


def test_relative_imports_go_up_as_many_folders_as_they_have_dots(tmp_path):
    (tmp_path / "other_file").mkdir()
    (tmp_path / "other_file" / "deep.py").write_text("from ..top_file import z\n")
    (tmp_path / "top_file.py").write_text("z = 5\n")
    assert loaded(tmp_path / "pack" / "main.py", "from ..other_file.deep import z").z == 5


def test_a_package_may_import_the_file_itself(tmp_path):
    (tmp_path / "__init__.py").write_text("from .main import x\nn = 11\n")
    assert loaded(tmp_path / "main.py", "x = 3\nfrom . import n").n == 11


def test_without_neighbours_a_file_is_alone(tmp_path):
    (tmp_path / "helper_file.py").write_text("x = 7\n")
    (skipped,) = vars(load_module("a_learners_module", "from helper_file import x", str(tmp_path / "main.py")))[SKIPPED]
    assert (skipped["type"], skipped["message"]) == ("ModuleNotFoundError", "No module named 'helper_file'")


def test_the_text_is_what_inspect_reads(tmp_path):
    import inspect

    module = loaded(tmp_path / "main.ipynb", "def f():\n    return 3\n")
    (tmp_path / "main.ipynb").write_text("{}")
    assert inspect.getsource(module.f) == "def f():\n    return 3\n"


def test_packages_of_an_environment_beside_the_file_are_no_neighbours(tmp_path):
    package = tmp_path / ".venv" / "lib" / "installed_file"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from installed_file.part import x\n")
    (package / "part.py").write_text("x = __loader__.__class__.__name__\n")
    sys.path.append(str(package.parent))
    try:
        assert loaded(tmp_path / "main.py", "from installed_file import x").x == "SourceFileLoader"
        assert "installed_file.part" in sys.modules  # others may hold on to it
    finally:
        sys.path.pop()
        del sys.modules["installed_file"], sys.modules["installed_file.part"]


def test_packages_beside_the_file_are_neighbours_with_all_that_is_in_them(tmp_path):
    (tmp_path / "own_file").mkdir()
    (tmp_path / "own_file" / "part.py").write_text("x = __loader__.__class__.__name__\n")
    assert loaded(tmp_path / "main.py", "from own_file.part import x").x == "_Loader"
