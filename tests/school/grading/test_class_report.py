import csv
import io
import json

import pytest

from regard.school.grading.class_report import UNKNOWN, ClassReport, Grade, as_grade
from regard.school.sandbox.protection import ProtectionReport


def finding(name, line=0, kind="mistake", says="It is so."):
    return {"name": name, "line": line, "kind": kind, "says": says, "code": ""}


def verdict(*findings, status="wrong", name="A", task="attention", problem=""):
    return {"status": status, "name": name, "task": task, "problem": problem, "findings": list(findings)}


def test_one_grade_joins_the_verdicts_on_several_layers():
    one = as_grade("ana.py", [verdict(finding("no scale", 7)), verdict(status="right", name="B")], 1.23456)
    assert (one.status, one.says, one.checked, one.seconds) == (
        "wrong", "no scale (line 7)", "A: attention; B: attention", 1.235,
    )  # fmt: skip


def test_a_class_that_uses_another_does_not_repeat_its_mistake():
    one = as_grade("ana.py", [verdict(finding("no scale", 7)), verdict(finding("no scale", 7), name="B")], 0.0)
    assert one.says == "no scale (line 7)"


def test_what_has_no_name_is_unknown_and_a_warning_is_no_mistake():
    assert as_grade("a.py", [verdict(finding("", 3))], 0.0).says == f"{UNKNOWN} (line 3)"
    warned = as_grade("a.py", [verdict(finding("fp16", kind="warning"), status="right")], 0.0)
    assert (warned.status, warned.says, warned.warnings) == ("right", "A: attention; but fp16", ("fp16: It is so.",))


def test_what_a_submission_says_is_made_printable():
    one = as_grade("a\x1b.py", [verdict(finding("", says="red \x1b[31m\nend"))], 0.0)
    assert (one.submission, one.mistakes[0].says) == (r"a\x1b.py", r"red \x1b[31m end")


REPORT = ClassReport(
    [
        as_grade("ana.py", [verdict(status="right")], 1.0),
        as_grade("ben.py", [verdict(finding("no scale", 7), finding("no causal mask"))], 2.0),
        as_grade("=cleo.py", [verdict(finding("no scale", 9), finding("no scale", 11))], 2.0),
        Grade("dan.py", "unchecked", problem="out of time: It did not end within 4 s.", seconds=4.0),
    ],
    ProtectionReport(("limits",), {"files": "Linux 5.13 is needed"}),
)


def test_mistakes_are_counted_once_for_each_submission():
    assert REPORT.mistakes == [("no scale", ["ben.py", "=cleo.py"]), ("no causal mask", ["ben.py"])]
    assert [REPORT.count(status) for status in ("right", "wrong", "unchecked")] == [1, 2, 1]


def test_csv_has_one_row_for_each_submission_and_no_formula():
    rows = list(csv.reader(io.StringIO(REPORT.as_csv())))
    assert rows[0] == ["submission", "status", "mistakes", "lines", "problem", "checked", "seconds"]
    assert rows[2] == ["ben.py", "wrong", "no scale; no causal mask", "7; ", "", "A: attention", "2.0"]
    assert rows[3][0] == "'=cleo.py"
    assert rows[4] == ["dan.py", "unchecked", "", "", "out of time: It did not end within 4 s.", "", "4.0"]


def test_json_is_complete():
    value = json.loads(json.dumps(REPORT.as_json()))
    assert value["counts"] == {"right": 1, "wrong": 2, "unchecked": 1}
    assert value["mistakes"]["no scale"] == ["ben.py", "=cleo.py"]
    assert value["protection"] == {"active": ["limits"], "missing": {"files": "Linux 5.13 is needed"}}
    assert value["grades"][1]["mistakes"][0] == {"name": "no scale", "says": "It is so.", "line": 7, "code": ""}


def test_a_report_shows_itself():
    assert "1 submission: 1 right." in repr(ClassReport([Grade("ana.py", "right", "A: attention")]))


@pytest.mark.parametrize(
    ("name", "cell"),
    [("=1", "'=1"), ("+1", "'+1"), ("-1", "'-1"), ("@a", "'@a"), ("＝1", "'＝1"), ("a;=1", "a;'=1"), ('a", =1',
    """a", '=1"""),
     ("a-b=1.py", "a-b=1.py"), ("a|@b", "a|'@b"), ("\t=1", "'=1"), ("\n=1", "'=1")],
)  # fmt: skip
def test_no_part_of_a_cell_is_a_formula(name, cell):
    text = ClassReport([as_grade(name, [verdict(status="right")], 1.0)]).as_csv()
    assert list(csv.reader(io.StringIO(text)))[1][0] == cell
