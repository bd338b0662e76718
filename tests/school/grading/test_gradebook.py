import os
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from regard.school.grading.class_report import Grade
from regard.school.grading.gradebook import (
    Gradebook,
    RosterRow,
    days_late,
    find_student,
    handed_in,
    read_overrides,
    read_roster,
)
from regard.school.grading.key import ClassRules, GradeKey
from regard.school.grading.rubric import PartScore, TaskScore

DEADLINE = datetime(2026, 11, 20, 23, 59, tzinfo=timezone(timedelta(hours=1)))
SCORES = (
    TaskScore("A", (PartScore("scores", "right", 5.0, 5.0), PartScore("mask", "not reached", 0.0, 3.0))),
    TaskScore("B", (PartScore("all", "right", 12.0, 12.0),)),
)
GRADE = Grade("ana.py", "wrong", scores=SCORES)
TASKS = (GradeKey(title="A", points=8), GradeKey(title="B", points=12))


def book(tmp_path, roster="", overrides="", names=("ana.py",), **rules):
    for name, text in (("roster", roster), ("overrides", overrides)):
        if text:
            (tmp_path / f"{name}.csv").write_text(text)
            rules[name] = str(tmp_path / f"{name}.csv")
    return Gradebook(GradeKey(tasks=TASKS, rules=ClassRules(**rules)), names)


def test_without_rules_points_are_the_sum_of_the_tasks(tmp_path):
    assert book(tmp_path).enter(GRADE, "ana.py", 0.0) == replace(GRADE, points=17.0, open=3.0)


def test_the_roster_says_whose_submission_it_is(tmp_path):
    roster = "Student;ID;Email;section\nana;s17;ana@school;2\nben;s19;;2\n"
    entered = book(tmp_path, roster).enter(GRADE, "ana.py", 0.0)
    assert (entered.student, entered.id, entered.email, entered.notes) == ("ana", "s17", "ana@school", ())
    other = book(tmp_path, roster, names=("dora.py",)).enter(GRADE, "dora.py", 0.0)
    assert (other.student, other.notes) == ("", ("not in the roster",))


def test_who_hands_in_twice_is_told(tmp_path):
    both = book(tmp_path, "student\nana\n", names=("ana.py", "ana.ipynb"))
    assert both.enter(GRADE, "ana.ipynb", 0.0).notes == ("ana handed in more than once",)


def test_who_hands_in_nothing_has_a_grade_of_zero(tmp_path):
    roster = "student,id,submitted\nana,1,\nben,2,2026-12-24T18:00:00\n"
    (missing,) = book(tmp_path, roster, deadline=DEADLINE).missing()
    assert (missing.days_late, missing.notes) == (0, ())
    assert (missing.student, missing.id, missing.submission, missing.status) == ("ben", "2", "", "missing")
    assert (missing.points, missing.of, missing.open) == (0.0, 20.0, 0.0)


@pytest.mark.parametrize(
    ("name", "student"),
    [
        ("ana.py", "ana"), ("ANA.ipynb", "ana"), ("homework-3-ana", "ana"), ("s17_attention.py", "ana"),
        ("ana-m.zip", "ana-m"), ("hw-ana-m", "ana-m"), ("anabel.py", None), ("ana_ben.py", None),
        ("ben@school.py", "ben"), ("b.py", None), ("smith_benn_s19_late_homework.py", "ben"),
    ],
)  # fmt: skip
def test_a_student_is_found_by_a_part_of_the_name(name, student):
    roster = [RosterRow("ana", "s17"), RosterRow("ana-m", "s18"), RosterRow("ben", "s19", "ben@school")]
    found = find_student(name, roster)
    assert (found and found.student) == student


@pytest.mark.parametrize(("hours", "days"), [(-1, 0), (0, 0), (0.1, 1), (24, 1), (24.1, 2), (100, 5)])
def test_a_late_day_counts_when_it_begins(hours, days):
    moment = DEADLINE + timedelta(hours=hours)
    assert days_late(ClassRules(deadline=DEADLINE), RosterRow(""), moment.timestamp()) == days


def test_the_roster_knows_better_than_the_time_of_a_file():
    rules = ClassRules(deadline=DEADLINE)
    row = RosterRow("ana", submitted=datetime(2026, 11, 22, 1, 0))  # of the deadline's time zone
    assert days_late(rules, row, 0.0) == 2
    assert days_late(rules, RosterRow("ana"), None) == 0
    local = ClassRules(deadline=DEADLINE.replace(tzinfo=None))
    assert days_late(local, RosterRow(""), DEADLINE.replace(tzinfo=None).timestamp() + 1) == 1


def test_days_beyond_the_free_ones_cost_a_part_of_the_points(tmp_path):
    rules = {"deadline": DEADLINE, "late_days": 1, "penalty": 0.1}
    late = (DEADLINE + timedelta(days=2.5)).timestamp()
    entered = book(tmp_path, **rules).enter(GRADE, "ana.py", late)
    assert (entered.points, entered.days_late) == (13.6, 3)
    assert entered.notes == ("3 days late, 1 free: −20 %",)
    entered = book(tmp_path, "student,late_days\nana,5\n", **rules).enter(GRADE, "ana.py", late)
    assert (entered.points, entered.notes) == (17.0, ("3 days late, 5 free",))
    long_ago = (DEADLINE + timedelta(days=40)).timestamp()
    assert book(tmp_path, **rules).enter(GRADE, "ana.py", long_ago).points == 0.0


def test_what_was_changed_by_hand_wins_and_is_shown(tmp_path):
    changed = book(tmp_path, overrides="student,points,reason\nana,15,oral exam\n", deadline=DEADLINE, penalty=0.5)
    entered = changed.enter(GRADE, "ana.py", (DEADLINE + timedelta(hours=1)).timestamp())
    assert (entered.points, entered.open) == (15.0, 0.0)
    assert entered.override == "points 15, not 8.5: oral exam"


def test_one_task_can_be_changed_by_hand_before_late_days_count(tmp_path):
    text = "student,task,points,reason\nana.py,A,7.5,the mask is right\n"
    entered = book(tmp_path, overrides=text).enter(GRADE, "ana.py", 0.0)
    assert (entered.points, entered.open) == (19.5, 0.0)
    assert entered.scores[0].parts == (PartScore("changed by hand", "right", 7.5, 8.0, "the mask is right"),)
    assert entered.override == "A 7.5, not 5: the mask is right"


def test_somebody_who_handed_in_nothing_can_get_points_by_hand(tmp_path):
    one = book(tmp_path, "student\nana\nben\n", "student,points,reason\nben,20,on paper\n")
    assert [(missing.student, missing.points) for missing in one.missing()] == [("ben", 20.0)]


def test_extra_credit_is_said_to_be_that(tmp_path):
    text = "student,points,reason,task,extra\nana,9,a proof,A,Yes\n"
    assert book(tmp_path, overrides=text).enter(GRADE, "ana.py", 0.0).points == 21.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("student,points,reason\nzoe,3,x\n", r"overrides\.csv: zoe is no submission and not in the roster"),
        ("student,points,reason,task\nana,3,x,C\n", r"overrides\.csv: C is no task; the key has A, B"),
        ("student,points,reason\nana,many,x\n", r"line 2: points \(many\) must be a number of at least 0"),
        ("student,points,reason\nana,-1,x\n", r"line 2: points \(-1\) must be a number of at least 0"),
        ("student,points,reason\nana,3,\n", r"line 2: ana has no reason; say why the points were changed"),
        (
            "student,points,reason,task\nana,8.5,x,A\n",
            r"ana gets 8\.5 points for A, which has 8; give at most 8, or write yes into a column extra",
        ),
        ("student,points,reason\nana,21,x\n", r"ana gets 21 points for everything, which has 20; give at most 20"),
        ("student,points,reason,extra\nana,21,x,maybe\n", r"line 2: extra \(maybe\) must be yes or no"),
        ("student,points\nana,3\n", r"must name the columns student, points, reason; reason is missing"),
        ("student,points,reason\nana\n", r"line 2: student, points, reason must all be there"),
    ],
)
def test_wrong_overrides_are_refused_before_anything_runs(tmp_path, text, says):
    with pytest.raises(ValueError, match=says):
        book(tmp_path, overrides=text)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"name\nana\n", "its first line must name the columns student; student is missing"),
        (b"", "its first line must name the columns student"),
        (b"student\nana\nana\n", "ana is there twice; every student has one line"),
        (b"student,late_days\nana,two\n", r"line 2: late_days \(two\) must be a whole number"),
        (b"student,submitted\nana,Friday\n", r"line 2: submitted \(Friday\) must be as 2026-11-20T23:59:00"),
        (b"student\n\xff\n", r"is not UTF-8 text; save it as CSV UTF-8"),
    ],
)
def test_a_wrong_roster_says_what_is_wrong(tmp_path, data, says):
    (tmp_path / "roster.csv").write_bytes(data)
    with pytest.raises(ValueError, match=says):
        read_roster(tmp_path / "roster.csv")
    with pytest.raises(ValueError, match=r"nowhere\.csv cannot be read: No such file"):
        read_overrides(tmp_path / "nowhere.csv")


def test_a_roster_of_a_spreadsheet_is_read(tmp_path):
    (tmp_path / "r.csv").write_bytes(b"\xef\xbb\xbfStudent;submitted;late_days\r\nana;2026-11-20T23:59:00Z;2\r\n;;\r\n")
    assert read_roster(tmp_path / "r.csv") == [
        RosterRow("ana", late_days=2, submitted=datetime(2026, 11, 20, 23, 59, tzinfo=timezone.utc))
    ]


def test_a_folder_is_as_new_as_its_newest_file(tmp_path):
    for name, moment in (("a/b/old.py", 1000), ("a/new.py", 5000)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (moment, moment))
    assert (handed_in(tmp_path / "a"), handed_in(tmp_path / "a/b/old.py")) == (5000.0, 1000.0)
