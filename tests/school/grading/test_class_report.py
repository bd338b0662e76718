import csv
import io
import json

import pytest

from regard.school.grading.class_report import UNKNOWN, ClassReport, Grade, as_grade
from regard.school.grading.rubric import PartScore, TaskScore
from regard.school.grading.similar import SimilarPair
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


def test_a_task_that_could_not_be_checked_is_said_beside_the_mistakes_of_another():
    one = as_grade(
        "ana.py", [verdict(finding("no scale", 7)), verdict(status="unchecked", problem="it defines no B")], 0
    )
    assert (one.status, one.says) == ("wrong", "no scale (line 7); it defines no B")


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


POINTS = ClassReport(
    [
        Grade("ana.py", "right", scores=(TaskScore("A", (PartScore("all", "right", 8.0, 8.0),)),), points=7.2,
              student="ana", id="s1", email="a@b", days_late=1, notes=("1 day late, 0 free: −10 %",)),
        Grade("", "missing", problem="nothing handed in", points=5.0,
              scores=(TaskScore("A", (PartScore("all", "wrong", 0.0, 8.0),)),),
              student="ben", override="points 5, not 0: oral"),
    ],
    has_points=True,
    ignored=[".DS_Store"],
    similar=[SimilarPair("ana.py", "cleo.py", 91)],
)  # fmt: skip


def test_csv_has_points_and_students_where_there_are_any_and_times_only_if_asked_for():
    assert list(csv.DictReader(io.StringIO(POINTS.as_csv(times=False)))) == [
        {"submission": "ana.py", "status": "right", "mistakes": "", "lines": "", "problem": "", "checked": "",
         "points": "7.2", "of": "8", "not checked": "0", "days late": "1", "override": "",
         "notes": "1 day late, 0 free: −10 %", "student": "ana", "id": "s1", "email": "a@b", "A": "8"},
        {"submission": "", "status": "missing", "mistakes": "", "lines": "", "problem": "nothing handed in",
         "checked": "", "points": "5", "of": "8", "not checked": "0", "days late": "0",
         "override": "points 5, not 0: oral", "notes": "", "student": "ben", "id": "", "email": "", "A": "0"},
    ]  # fmt: skip
    assert POINTS.as_csv().splitlines()[0].endswith(",email,A,seconds")
    stopped = ClassReport([Grade("a.py", "unchecked", problem="not graded yet"), *POINTS.grades], has_points=True)
    assert stopped.as_csv().splitlines()[0].endswith(",email,A,seconds")


def test_json_without_times_is_the_same_on_every_run():
    value = POINTS.as_json(times=False)
    assert "protection" not in value
    assert all("seconds" not in one for one in value["grades"])
    assert value["similar"] == [{"one": "ana.py", "other": "cleo.py", "percent": 91}]
    assert (value["ignored"], value["grades"][0]["of"]) == ([".DS_Store"], 8.0)


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
