import pytest

from regard.school.check.own_file import check_here
from regard.school.check.request import Request
from school.check.student_files import FILES, IMPORTS, LAYER, PLAIN, RIGHT, UNSCALED, WRONG, notebook, summary, write


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr("regard.school.sandbox.statements.SPARE_SECONDS", 0.1)
    monkeypatch.setattr("regard.school.sandbox.modules.SPARE_SECONDS", 0.1)


@pytest.mark.parametrize(("name", "content", "expected"), FILES, ids=[one[0] for one in FILES])
def test_a_file_is_checked_in_the_form_that_a_student_has_it(tmp_path, name, content, expected):
    verdicts = check_here(write(tmp_path, name, content), "", Request())
    assert [summary(one) for one in verdicts] == [expected]


def checked(tmp_path, text, name=""):
    path = tmp_path / "homework.py"
    path.write_text(text)
    return check_here(path, name, Request())


def test_a_line_of_a_notebook_is_a_line_of_a_cell(tmp_path):
    content = notebook(("markdown", "Text"), IMPORTS, "1 / 0", UNSCALED.partition("\n\n\n")[2])
    (verdict,) = check_here(write(tmp_path, "homework.ipynb", content), "", Request())
    (mistake,) = verdict.mistakes
    assert (mistake.cell, mistake.line, mistake.place) == (4, 9, "cell 4, line 9")
    assert mistake.code == "scores = self.W_query(x) @ self.W_key(x).mT"
    assert verdict.notes == ["Cell 3, line 1 was skipped: ZeroDivisionError: division by zero."]
    assert "homework.ipynb, cell 4, line 9   scores = self.W_query(x)" in repr(verdict)
    assert verdict.as_json()["findings"][0]["cell"] == 4


def test_an_inner_class_is_judged_with_the_outer_one(tmp_path):
    outer = """
class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, num_heads):
        super().__init__()
        heads = (CausalAttention(d_in, d_out // num_heads, context_length) for _ in range(num_heads))
        self.heads = nn.ModuleList(heads)

    def forward(self, x):
        return torch.cat([head(x) for head in self.heads], dim=-1)
"""
    (verdict,) = checked(tmp_path, LAYER + outer)
    assert summary(verdict) == ("MultiHeadAttention", "right", ())
    assert verdict.notes[-1] == "CausalAttention is a part of MultiHeadAttention, and checked with it."
    (verdict,) = checked(tmp_path, UNSCALED + outer)
    assert summary(verdict) == ("MultiHeadAttention", "wrong", ("no scale",))


def test_the_parts_of_what_could_not_be_checked_are_judged(tmp_path):
    outer = "class MultiHeadAttention(nn.Module):\n    def __init__(self, flavour): self.a = CausalAttention(flavour)\n"
    verdicts = checked(tmp_path, UNSCALED + outer)
    assert [one.name for one in verdicts] == ["MultiHeadAttention", "CausalAttention"]
    assert summary(verdicts[1]) == WRONG


def test_a_second_class_that_nobody_uses_is_judged(tmp_path):
    second = UNSCALED.partition("\n\n\n")[2].replace("CausalAttention", "Mixer")
    verdicts = checked(tmp_path, f"{LAYER}\n{second}")
    assert list(map(summary, verdicts)) == [RIGHT, ("Mixer", "wrong", ("no scale",))]


def test_attention_that_cannot_be_defined_is_wrong_and_the_rest_is_judged(tmp_path):
    lost = "class MultiHeadAttention(nm.Module): pass\n"
    first, second = checked(tmp_path, f"{LAYER}{lost}")
    (mistake,) = first.mistakes
    assert (first.name, mistake.name, mistake.line) == ("MultiHeadAttention", "does not run", 16)
    assert mistake.says == "The file does not run: NameError: name 'nm' is not defined."
    assert summary(second) == RIGHT
    assert [one.name for one in checked(tmp_path, f"{LAYER}{lost}", "MultiHeadAttention")] == ["MultiHeadAttention"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import no_package\n", "it imports what is not installed here: No module named 'no_package'"),
        ("open('data.txt')\n", "it reads a file that is not here: [Errno 2] No such file or directory: 'data.txt'"),
        ("x = 3\n", "it defines no attention layer; say which class or function: FILE.py:NAME"),
    ],
)
def test_a_file_with_nothing_to_check_says_why(tmp_path, text, problem):
    (verdict,) = checked(tmp_path, text)
    assert (verdict.name, verdict.status, verdict.problem) == ("homework.py", "unchecked", problem)


def test_a_file_that_is_no_python_does_not_run_whatever_is_asked_for(tmp_path):
    for name in ("", "Attention"):
        (verdict,) = checked(tmp_path, "class Attention(\n", name)
        (mistake,) = verdict.mistakes
        assert (mistake.name, mistake.line, mistake.code) == ("does not run", 1, "class Attention(")


def test_few_of_many_skipped_statements_are_told(tmp_path):
    (verdict,) = checked(tmp_path, LAYER + "1 / 0\n" * 5)
    assert verdict.notes[2:] == [
        "Line 18 was skipped: ZeroDivisionError: division by zero.",
        "2 more statements were skipped.",
    ]


def test_a_dropout_of_ones_own_is_not_called_right(tmp_path):
    _, (text, _) = next((name, pair) for name, pair in PLAIN.items() if name == "np_params.py")
    (verdict,) = checked(tmp_path, text.replace("rng =", "self.training = True; rng ="))
    assert verdict.problem == "it has a dropout of its own, which no check knows; without it, it is right"


def test_a_class_whose_base_was_not_imported_has_a_missing_import(tmp_path):
    (verdict,) = checked(tmp_path, LAYER.replace("from torch import nn\n", ""))
    assert [(one.name, one.says) for one in verdict.mistakes] == [("missing import", "nn is used, and never imported.")]
