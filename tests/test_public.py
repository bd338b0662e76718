"""The public names of regard, imported on first use."""

import inspect
import subprocess
import sys

import pytest

import regard
from regard import public


def in_a_new_process(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("name", public.__all__)
def test_every_public_name_is_an_attribute_of_regard(name):
    assert getattr(regard, name) is getattr(public, name)


def test_importing_regard_does_not_import_torch():
    assert in_a_new_process("import regard, sys; print('torch' in sys.modules)") == "False"


def test_packages_need_no_import_of_their_own():
    names = ["ladder", "gpt", "heads", "attention"]
    code = f"import regard; print(*(getattr(regard, name).__name__ for name in {names}))"
    assert in_a_new_process(code).split() == [f"regard.{name}" for name in names]


def test_a_star_imports_exactly_the_public_names():
    names = in_a_new_process("from regard import *; print(*sorted(n for n in dir() if not n.startswith('_')))")
    assert names.split() == sorted(public.__all__)


def test_the_device_of_the_first_use_is_not_that_of_tensors_in_modules():
    code = "import torch, regard\nwith torch.device('meta'): regard.GPT\nprint(regard.ladder.VECTORS.device)"
    assert in_a_new_process(code) == "cpu"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'atend'"):
        _ = regard.atend
    assert not hasattr(regard, "__wrapped__")


def test_dir_lists_the_public_names_before_any_is_used():
    code = "import regard, sys; names = dir(regard); print(set(regard.__all__) <= set(names), 'import_module' in names)"
    assert in_a_new_process(code) == "True False"


def test_a_first_use_in_inference_mode_makes_ordinary_tensors():
    code = (
        "import regard, torch\n"
        "with torch.inference_mode(): regard.causal()\n"
        "print(regard.ladder.VECTORS.is_inference())"
    )
    assert in_a_new_process(code) == "False"


@pytest.mark.slow
def test_a_first_answer_loads_neither_sympy_nor_anything_that_it_does_not_need(tmp_path):
    source = inspect.getsource(regard.ladder.multi_head)
    (tmp_path / "homework.py").write_text(source)
    code = (
        "import sys; from pathlib import Path; from regard.commands.see import see; see('The cat sat')\n"
        "from regard.school.check.own_file import check_here; from regard.school.check.request import Request\n"
        f"check_here(Path({str(tmp_path / 'homework.py')!r}), '', Request(None, {{}}, {{}}))\n"
        "print([one for one in ('sympy', 'torch._dynamo', 'transformers', 'matplotlib') if one in sys.modules])"
    )
    assert in_a_new_process(code).splitlines()[-1] == "[]"
