import pytest

from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.check.compare.experiment import Attempt
from regard.school.check.explain.exceptions import explain_crash
from regard.school.check.learner_code.protocol import Failure
from regard.school.check.request import Request
from sampled import quick_every
from school.check.learner import checked, edited, subject_of, wrong


@pytest.mark.parametrize("layer", ["textbook", "loop"])
def test_a_forgotten_super_is_named_at_its_init(layer, tmp_path):
    case = wrong("super().__init__() missing", layer)
    (finding,) = checked(case.source, tmp_path).mistakes
    assert finding.name == "super().__init__() missing"
    assert finding.code.startswith("def __init__(")


def test_a_view_of_a_transposed_tensor_is_named_with_its_line(tmp_path):
    case = wrong("view of a non-contiguous tensor", "packed")
    (finding,) = checked(case.source, tmp_path).mistakes
    assert finding.name == "view of a non-contiguous tensor"
    assert finding.line in case.lines


@pytest.mark.parametrize(
    ("layer", "word"),
    quick_every(
        4,
        [
            ("textbook", "the width is 768"),
            ("masked_exp", "the width is 512"),
            ("packed", "head_dim is 64"),
            ("fused", "head_dim is 64"),
            ("einsum", "num_heads is 8"),
            ("loop", "the batch size is 4"),
            ("batched", "the number of tokens is 16"),
        ],
    ),
)
def test_a_number_in_the_code_is_a_size_if_the_layer_runs_where_it_fits(layer, word, tmp_path):
    (finding,) = checked(wrong("hard-coded sizes", layer).source, tmp_path).mistakes
    assert finding.name == "hard-coded sizes"
    assert finding.says == f"It runs only where {word}: that number is written in the code."


def test_an_error_without_a_name_is_told_with_its_line(tmp_path):
    source = edited("loop", "torch.softmax(s, dim=-1)", "softmax(s, dim=-1)")
    (finding,) = checked(source, tmp_path).mistakes
    assert finding.name == ""
    assert finding.says == "It fails in forward: NameError: name 'softmax' is not defined."
    assert finding.code == "a = softmax(s, dim=-1)"


def test_a_missing_import_of_functional_has_a_remedy(tmp_path):
    subject = subject_of(edited("loop", "x", "x"), tmp_path)
    failed = Failure("NameError", "name 'F' is not defined", 3, "forward")
    finding = explain_crash(Attempt(subject=subject, request=Request(), sizes=PROBES[0], failed=failed))
    assert finding.says.endswith("Write import torch.nn.functional as F at the top of the file.")
