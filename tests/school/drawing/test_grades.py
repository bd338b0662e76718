from regard.school.grading.class_report import ClassReport, Grade, GradedMistake
from regard.school.sandbox.protection import ProtectionReport
from regard.support.drawing import as_page, as_text

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
