import torch

from regard.school.check.verdict import Example, Finding, Verdict
from regard.school.grading.class_report import ClassReport, Grade, GradedMistake
from regard.school.grading.rubric import PartScore, TaskScore
from regard.school.grading.similar import SimilarPair
from regard.school.sandbox.protection import ProtectionReport
from regard.support.drawing import as_page, as_text

EXAMPLE = Example(
    "weights for 3 tokens, head 0 of 3",
    torch.eye(3),
    torch.tensor([[1, 0, 0], [0.25, 0.75, 0], [-0.5, torch.nan, torch.inf]]),
)
SCALE = Finding(
    "scale by √d_model",
    "The scores are divided by √21, the width of all heads together; it is √head_dim = √7.",
    "A score is a sum of head_dim products.",
    "scores = scores / head_dim**0.5",
    "scaled",
    31,
    "scores = q @ k.mT / math.sqrt(self.d_model)",
    EXAMPLE,
)
FP16 = Finding(
    "−1e9 overflows in fp16",
    "In float16 it fails.",
    "−∞ exists in every type.",
    line=33,
    code="s.masked_fill(m, -1e9)",
    is_warning=True,
)


def wrong(*findings, **options):
    return Verdict(
        "MultiHeadAttention", "multi-head attention, 3 heads of 7", list(findings), file="a/homework.py", **options
    )


def test_a_mistake_is_told_with_its_line_its_numbers_and_why():
    assert as_text(wrong(SCALE, sizes={"d_model": 21}), 80) == (
        "  ✗ MultiHeadAttention: scale by √d_model\n\n"
        "    homework.py:31   scores = q @ k.mT / math.sqrt(self.d_model)\n\n"
        "    The scores are divided by √21, the width of all heads together; it is\n"
        "    √head_dim = √7.\n\n"
        "    weights for 3 tokens, head 0 of 3\n"
        "      yours               expected\n"
        "      1.00  0.00  0.00     1.00   0.00   0.00\n"
        "      0.00  1.00  0.00     0.25   0.75   0.00\n"
        "      0.00  0.00  1.00    −0.50    NaN      ∞\n\n"
        "    A score is a sum of head_dim products.\n\n"
        "    Checked as multi-head attention, 3 heads of 7; built with d_model=21."
    )


def test_what_was_tried_of_a_right_layer_is_one_line_and_what_could_not_be_is_another():
    tried = {"checked": ["values", "gradients"], "not_checked": ["lengths: of more than 5 tokens"]}
    assert as_text(wrong(**tried), 80) == (
        "  ✓ MultiHeadAttention is right: multi-head attention, 3 heads of 7\n\n"
        "    Checked: values, gradients.\n\n"
        "    Not checked: lengths: of more than 5 tokens."
    )
    assert "gradients" not in as_text(wrong(SCALE, **tried), 80)  # a mistake shows in everything that comes after it


def test_the_right_line_is_shown_on_request():
    assert "Write: scores = scores / head_dim**0.5" in as_text(wrong(SCALE, shows_fix=True), 80)


def test_several_mistakes_are_numbered():
    text = as_text(wrong(SCALE, Finding("", "It computes something else.", step="out")), 80)
    assert "✗ MultiHeadAttention: 2 mistakes" in text
    assert "    1. scale by √d_model" in text
    assert "    2. unknown mistake" in text


def test_a_warning_stands_below_a_right_layer():
    text = as_text(wrong(FP16), 80)
    assert text.startswith("  ✓ MultiHeadAttention is right: multi-head attention, 3 heads of 7")
    assert "  ! −1e9 overflows in fp16: In float16 it fails." in text
    assert "homework.py:33   s.masked_fill(m, -1e9)" in text


def test_what_could_not_be_checked_says_why():
    assert as_text(wrong(problem="its projections are unknown"), 80).startswith(
        "  ? MultiHeadAttention could not be checked: "
    )


def test_wide_numbers_stand_below_one_another_and_no_line_is_too_long():
    wide = Example("out", torch.randn(3, 6) * 1000, torch.randn(3, 6) * 1000)
    text = as_text(wrong(Finding("", "x " * 90, step="out", line=3, code="y" * 200, example=wide)), 60)
    assert "      yours     " in text
    assert "      expected  " in text
    assert max(map(len, text.splitlines())) <= 60


def test_an_example_has_as_many_digits_as_show_the_difference():
    def shown(seen, expected):
        example = Example("the result", torch.tensor([seen]), torch.tensor([expected]))
        return as_text(wrong(Finding("", "It differs.", example=example)), 80).splitlines()[-1].split()

    assert shown([0.5, 1.0], [0.25, 1.0]) == ["0.50", "1.00", "0.25", "1.00"]
    assert shown([0.0012], [0.0013]) == ["0.0012", "0.0013"]
    assert shown([1.0, -torch.inf], [0.0, 2.0]) == ["1", "−∞", "0", "2"]
    assert shown([-0.001, 1.5], [-0.0, 2.5]) == ["0.00", "1.50", "0.00", "2.50"]


def test_a_long_heading_of_an_example_is_wrapped_and_no_shape_is_broken():
    about = "attend(scores = 4 × 3 × 7 × 5, v = 4 × 3 × 5 × 11): the result, at [2, 0, 1], row 2 to 4 of 7"
    example = Example(about, torch.tensor([[0.5]]), torch.tensor([[0.25]]))
    for width in range(30, 100):
        lines = as_text(wrong(Finding("", "It differs.", example=example)), width).splitlines()
        assert max(map(len, lines)) <= width
        text = "\n".join(lines)
        assert all(shape in text for shape in ("4 × 3 × 7 × 5", "4 × 3 × 5 × 11", "[2, 0, 1]"))


HOSTILE = "<script>alert(1)</script>"
REPORT = ClassReport(
    [
        Grade("ana.py", "right", "A: causal self-attention, one head of 21"),
        Grade("ben.py", "wrong", "", (GradedMistake("no scale", HOSTILE, 7, "x = '&'"),)),
        Grade(f"{HOSTILE}.py", "unchecked", problem="out of time: It did not end within 4 s."),
    ]
)


def test_the_table_fits_80_columns_and_counts():
    text = as_text(REPORT, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "  ✓  ana.py                        A: causal self-attention, one head of 21\n" in text
    assert "  ✗  ben.py                        no scale (line 7)\n" in text
    assert "  times  mistake\n  1      no scale\n" in text
    assert text.endswith("  3 submissions: 1 right, 1 wrong, 1 could not be checked.")


def test_missing_protection_is_told():
    report = ClassReport(REPORT.grades[:1], ProtectionReport((), {"files": "Linux 5.13 is needed"}))
    assert as_text(report, 80).endswith("1 submission: 1 right. Without protection: files.")


def test_the_page_is_one_escaped_document_without_addresses():
    page = as_page(REPORT, HOSTILE)
    assert page.startswith("<!doctype html>")
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 4  # title, heading, a file's name and a reason
    assert "Line 7: x = &#x27;&amp;&#x27;" in page
    assert "http:" not in page
    assert "https:" not in page


SCORED = ClassReport(
    [
        Grade("ana.py", "right", "A: attention", points=7.5,
              scores=(TaskScore("A", (PartScore("all", "right", 8, 8),)),)),
        Grade("", "missing", problem="nothing handed in", student="eva", points=5.0, override="points 5, not 0: oral",
              scores=(TaskScore("A", (PartScore("all", "wrong", 0, 8),)),), notes=("not in time",)),
    ],
    has_points=True,
    ignored=[".DS_Store", "Thumbs.db"],
    similar=[SimilarPair("ana.py", "ben.py", 91)] * 21,
)  # fmt: skip


def test_points_students_and_similar_code_are_in_the_table():
    lines = as_text(SCORED, 80).splitlines()
    assert lines[:3] == [
        "     submission    points    verdict",
        "  ✓  ana.py        7.5 of 8  A: attention",
        "  –  eva           5* of 8   nothing handed in",
    ]
    assert lines[4:6] == ["  similar  look yourself", "  91 %     ana.py         ben.py"]
    assert lines[25] == "  … and 1 more pairs"
    assert " ".join(" ".join(lines[27:]).split()) == (
        "1 submission: 1 right. 1 student handed in nothing. * changed by hand. Ignored: .DS_Store, Thumbs.db."
    )


def test_points_notes_and_every_similar_pair_are_on_the_page():
    page = as_page(SCORED, "Grades")
    assert "5* of 8" in page
    assert "not in time. Changed by hand: points 5, not 0: oral." in page
    assert page.count("91 %") == 21
