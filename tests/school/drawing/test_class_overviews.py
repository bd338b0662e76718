"""A class in a terminal, CSV, JSON and on a page."""

import csv
import io
import json

import pytest
from tiny_course import write_course

from regard.school.course.class_overview import ClassMember
from regard.school.course.courses import read_course
from regard.school.drawing.class_overviews import class_csv, class_json, class_page, class_text

MEMBERS = [
    ClassMember("ada", states=("done", "now", ""), current="twice", attempts=2, mistakes=("squared",)),
    ClassMember("ben", states=("done", "now", "tried"), current="twice", attempts=1, mistakes=("squared",)),
    ClassMember("<b>=cleo", states=("done", "done", "done")),
    ClassMember("emil", problem="no progress.txt; not started, or not handed in"),
]


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return read_course(write_course(tmp_path_factory.mktemp("course") / "tiny"))


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_text_keeps_to_the_width_and_says_where_most_are(course, width):
    text = class_text(MEMBERS, course, width)
    assert max(map(len, text.split("\n"))) <= width
    assert "Most are at: twice (2)." in text
    assert "squared" in text
    assert "all done" in text


def test_a_mistake_of_one_alone_is_not_in_the_list_of_common_ones(course):
    assert "who" in class_text(MEMBERS, course, 80)
    assert "who" not in class_text([MEMBERS[0], MEMBERS[2]], course, 80)


def test_the_rows_of_the_csv_are_the_members(course):
    rows = list(csv.DictReader(io.StringIO(class_csv(MEMBERS, course))))
    assert [[one["done"], one["of"], one["now_at"], one["twice"], one["mistakes"]] for one in rows] == [
        ["1", "3", "twice", "now", "squared"],
        ["1", "3", "twice", "now", "squared"],
        ["3", "3", "", "done", ""],
        ["0", "0", "", "", ""],
    ]
    assert rows[3]["problem"] == "no progress.txt; not started, or not handed in"


def test_the_json_holds_everything(course):
    value = json.loads(class_json(MEMBERS, course))
    assert value["course"] == {"title": course.title, "hash": course.hash}
    assert value["mistakes"] == [{"exercise": "twice", "mistake": "squared", "students": ["ada", "ben"]}]
    assert value["students"][1]["states"] == {"hello": "done", "twice": "now", "choose": "tried"}
    assert value["students"][3]["states"] == {}


def test_the_page_marks_every_exercise_and_escapes_names(course):
    page = class_page(MEMBERS, course)
    assert "✓→✗" in page
    assert "✓✓✓" in page
    assert "&lt;b&gt;" in page
    assert "<b>=cleo" not in page
