"""Where everybody in a class is, as a table in the terminal, CSV, JSON, or a page with a mark for each exercise."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from regard.school.course.class_overview import ClassMember, common_mistakes
from regard.school.course.courses import Course
from regard.school.drawing.verdicts import html_document
from regard.school.grading.class_report import clean, csv_text
from regard.show.terminal.table import html_table, text_table, wrapped

_MARKS = {"done": "✓", "now": "→", "tried": "✗", "": "·"}
_LEGEND = "✓ done   → works on it now   ✗ tried, not right   · not begun"


def class_text(members: Sequence[ClassMember], course: Course, width: int) -> str:
    """A row for each learner, where the class is, and the mistakes that several make."""
    rows = [
        [clean(one.name), f"{one.done} of {len(one.states)}" if one.states else "–", _now(one), one.date, _says(one)]
        for one in members
    ]
    blocks = [
        text_table(["student", "done", "now at", "last", "what is wrong there"], rows, width, cut={0: 6, 2: 8, 4: 10})
    ]
    places = Counter(one.current for one in members if one.current)
    if places:
        where = [f"{name} ({count})" for name, count in places.most_common(5)]
        blocks.append(wrapped(f"Most are at: {', '.join(where)}.", width))
    if several := [one for one in common_mistakes(list(members)) if len(one[2]) > 1]:
        table = [[str(len(who)), exercise, mistake, ", ".join(map(clean, who))] for exercise, mistake, who in several]
        blocks.append(text_table(["times", "exercise", "mistake", "who"], table, width, cut={2: 14, 3: 8}))
    return "\n\n".join(blocks)


def class_csv(members: Sequence[ClassMember], course: Course) -> str:
    """A row for each learner, a column for each exercise."""
    head = ["student", "done", "of", "now_at", "attempts", "hints", "solutions_seen", "last", "mistakes", "problem"]
    rows = [
        [
            *map(clean, (one.name, str(one.done), str(len(one.states)), one.current, str(one.attempts))),
            *map(clean, (str(one.hints), str(one.solutions), one.date, "; ".join(one.mistakes), one.problem)),
            *(one.states or ("",) * len(course.lessons)),
        ]
        for one in members
    ]
    return csv_text([[*head, *(one.name for one in course.lessons)], *rows])


def class_json(members: Sequence[ClassMember], course: Course) -> str:
    """Everything, in plain values."""
    students = [
        {**asdict(one), "folder": None if one.folder is None else str(one.folder), "states": states}
        for one in members
        for states in [dict(zip((lesson.name for lesson in course.lessons), one.states, strict=False))]
    ]
    mistakes = [
        {"exercise": exercise, "mistake": mistake, "students": who}
        for exercise, mistake, who in common_mistakes(list(members))
    ]
    value = {"course": {"title": course.title, "hash": course.hash}, "students": students, "mistakes": mistakes}
    return f"{json.dumps(value, indent=2, ensure_ascii=False)}\n"


def class_page(members: Sequence[ClassMember], course: Course) -> str:
    """One page: a mark for each learner and exercise, and the mistakes."""
    rows = [
        [clean(one.name), "".join(_MARKS[state] for state in one.states), str(one.done), _now(one), _says(one)]
        for one in members
    ]
    table = html_table(_LEGEND, ["student", "exercises", "done", "now at", "what is wrong there"], rows, left=True)
    done = [sum(one.states[at] == "done" for one in members if one.states) for at in range(len(course.lessons))]
    counts = [[str(one.number), one.name, one.title, str(n)] for one, n in zip(course.lessons, done, strict=True)]
    table += html_table("Exercises", ["", "name", "what it is about", "students who are done"], counts, left=True)
    if mistakes := common_mistakes(list(members)):
        lines = [[str(len(who)), exercise, clean(what), ", ".join(map(clean, who))] for exercise, what, who in mistakes]
        table += html_table(
            "Mistakes, the most frequent first", ["times", "exercise", "mistake", "who"], lines, left=True
        )
    return html_document(html.escape(f"{course.title}: a class"), table)


def _now(one: ClassMember) -> str:
    if one.problem:
        return ""
    tries = f", {one.attempts} attempt{'s' * (one.attempts != 1)}" if one.attempts else ""
    return f"{one.current}{tries}" if one.current else "all done"


def _says(one: ClassMember) -> str:
    return clean(one.problem or "; ".join(one.mistakes))
