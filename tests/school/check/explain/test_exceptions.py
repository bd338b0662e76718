import pytest
import torch

from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.check.compare.experiment import Attempt
from regard.school.check.explain.exceptions import explain_crash, missing_import
from regard.school.check.learner_code.protocol import Failure
from regard.school.check.request import Request
from sampled import quick_every
from school.check.learner import LESS, broken, checked, edited, subject_of, wrong


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
    source = edited("loop", "torch.softmax(s, dim=-1)", "torch.softmax(s, dim={})")
    (finding,) = checked(source, tmp_path).mistakes
    assert finding.name == ""
    assert finding.says.startswith("It fails in forward: TypeError: softmax()")
    assert finding.code == "a = torch.softmax(s, dim={})"


@pytest.mark.parametrize(
    ("old", "new", "name", "says"),
    [
        ("torch.softmax(s, dim=-1)", "softmax(s, dim=-1)", "missing import", "softmax is used, and never imported."),
        (
            "torch.softmax(s, dim=-1)",
            "torch.softmax(ss, dim=-1)",
            "unknown name",
            "ss has no value here, in forward. There is s: is that meant?",
        ),
        (
            "self.wv(x)",
            "self.wvs(x)",
            "unknown attribute",
            "self.wvs is used, and MultiHead has no such attribute. There is self.wv: is that meant?",
        ),
        (
            "Q = self.wq(x)",
            "Q = wq(x)",
            "unknown name",
            "wq has no value here, in forward. There is self.wq: is that meant?",
        ),
        (
            "Q = self.wq(x)",
            "Qs = self.wq(x)",
            "unknown name",
            "Q has no value here, in forward. There is Qs: is that meant?",
        ),
        (
            "def forward(self, x)",
            "def forwrad(self, x)",
            "unknown name",
            "MultiHead has no method forward. There is forwrad: is forward meant?",
        ),
        (
            "def forward(self, x)",
            "def forward(x)",
            "wrong number of arguments",
            "The first argument of forward is self, and it is missing: def forward(self, x).",
        ),
        (
            "def __init__(",
            "def _init_(",
            "unknown attribute",
            "self.wq is used, and MultiHead has no such attribute. _init_ is never called: its name is __init__.",
        ),
        (
            "Q = self.wq(x)",
            "Q = self.wq(x).cuda()",
            "hard-coded device",
            "A tensor is put on a GPU, wherever x is; here, x is on the CPU.",
        ),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="there, .cuda() does not fail")
def test_an_error_has_a_name_and_says_what_is_like_it(old, new, name, says, tmp_path):
    (finding,) = checked(edited("loop", old, new), tmp_path).mistakes
    assert (finding.name, finding.says) == (name, says)


def test_a_missing_import_of_functional_has_a_remedy(tmp_path):
    subject = subject_of(edited("loop", "x", "x"), tmp_path)
    failed = Failure("NameError", "name 'F' is not defined", 3, "forward")
    finding = explain_crash(Attempt(subject=subject, request=Request(), sizes=PROBES[0], failed=failed))
    assert (finding.name, finding.fix) == ("missing import", "import torch.nn.functional as F")


def test_what_the_check_itself_passed_has_no_name(tmp_path):
    subject = subject_of(edited("loop", "x", "x"), tmp_path)
    failed = Failure("TypeError", "LoopAttention.forward() missing 1 required positional argument: 'y'")
    finding = explain_crash(Attempt(subject=subject, request=Request(), sizes=PROBES[0], failed=failed))
    assert finding.name == ""


def test_a_constant_of_the_file_is_a_size_too(tmp_path):
    mask = "tokens = 64\n\n\nclass Attention(nn.Module):\n"
    hides = "scores.masked_fill(torch.ones(tokens, tokens).triu(1) > 0, -torch.inf).softmax(-1)"
    (finding,) = broken(tmp_path, *LESS, "class Attention(nn.Module):\n", mask, "scores.softmax(-1)", hides).mistakes
    assert finding.name == "hard-coded sizes"
    assert finding.code == "tokens = 64"


def test_a_module_that_a_class_needs_and_nothing_imports_is_a_missing_import():
    finding = missing_import("NameError", "name 'nn' is not defined", 4)
    assert (finding.name, finding.line, finding.fix) == ("missing import", 4, "from torch import nn")
    assert missing_import("NameError", "name 'Base' is not defined", 4) is None
    assert missing_import("ImportError", "name 'nn' is not defined", 4) is None
