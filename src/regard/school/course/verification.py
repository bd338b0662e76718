"""A course checks itself: every exercise fails unsolved, its solution passes, its wrong answers get their names."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.school.course.answers import AnswerChecker
from regard.school.course.courses import LEVELS, WORDS, WRONG, Course, Lesson, files_in

FILES = {"start.py", "solution.py", "exercise.py", WORDS}
MOVED = {
    "wrong/": f"wrong answers are edits in {WRONG} now",
    "ways/": f"other ways are code blocks in {WORDS} now",
    "hints.md": f"hints are in {WORDS} now",
    "after.md": f"the explanation is in {WORDS} now",
}
WIDEST, MOST_HINT_LINES, MOST_AFTER_LINES, MOST_START_LINES = 76, 3, 12, 60
LEAST_WRONG, LEAST_WAYS = 3, 2
Check = Callable[[str], tuple[str, str, str]]
SHORTEST = 8  # characters of a line of the solution that a hint must not hold; `return` alone says nothing


@dataclass
class LessonReport:
    """What was found in one exercise."""

    name: str
    faults: list[str] = field(default_factory=list)
    wrong: int | None = 0  # wrong answers that got their names; None where they are not installed
    ways: int = 0  # other ways that passed
    seconds: float = 0.0  # of the longest check


def verify_course(course: Course) -> list[str]:
    """What is wrong with the course as a whole: stray files, and folders that course.toml does not name."""
    allowed = {"course.toml", "README.md", *(lesson.name for lesson in course.lessons)}
    found = {path.relative_to(course.folder).parts[0] for path in files_in(course.folder)}
    return [f"{one} is not named in course.toml" for one in sorted(found - allowed)]


def verify_lesson(lesson: Lesson, checker: AnswerChecker) -> LessonReport:
    """Everything about one exercise. Each fault is a sentence with what to do."""
    report = LessonReport(lesson.name)
    inside = {path.relative_to(lesson.folder).as_posix() for path in files_in(lesson.folder)}
    report.faults += _stray(inside)
    if missing := FILES - inside:
        report.faults.append(f"missing: {', '.join(sorted(missing))}")
        return report
    from regard.school.exercises.exercise import Function, Layer
    from regard.school.exercises.soundness import unsound

    try:
        report.faults += [*_texts(lesson), *_after(lesson), *_same_names(lesson)]
        exercise, check = checker.exercise(lesson), partial(_check, lesson, checker, report)
        report.faults += [f"exercise.py, {one}" for one in unsound(exercise)]
        report.faults += _given(lesson, exercise.passes_unsolved, check)
        is_code = any(isinstance(part, (Function, Layer)) for part in exercise.parts)  # to be written in several ways
        least = (0, 0) if exercise.passes_unsolved else (LEAST_WRONG, LEAST_WAYS * is_code)
        report.faults += _others(lesson, *least, check, report)
    except (ValueError, SyntaxError) as error:
        report.faults.append(str(error))
    return report


def _stray(inside: set[str]) -> Iterator[str]:
    unknown = sorted(inside - FILES - {WRONG})
    for old, now in MOVED.items():
        if any(path.startswith(old) for path in unknown):
            yield f"{old}: {now}; see docs/learn.md"
    yield from (f"stray file: {path}" for path in unknown if not path.startswith(tuple(MOVED)))


def _texts(lesson: Lesson) -> Iterator[str]:
    """Task, hints and explanation: complete, short, and without a line of the solution."""
    if not lesson.task:
        yield "start.py has no docstring; it is the task"
    if (count := len(lesson.text("start.py").splitlines())) > MOST_START_LINES:
        yield f"start.py has {count} lines; at most {MOST_START_LINES}"
    if tuple(lesson.hints) != LEVELS:
        yield f"{WORDS} has {', '.join(lesson.hints) or 'no sections'}; it needs {', '.join(LEVELS)}, in this order"
    solution = _solution_lines(lesson)
    for level, text in lesson.hints.items():
        lines = text.splitlines()
        if not lines or len(lines) > MOST_HINT_LINES:
            yield f"hint {level!r} has {len(lines)} lines; 1 to {MOST_HINT_LINES}"
        yield from _too_wide(lines, f"hint {level!r}")
        plain = [" ".join(line.strip().strip("`").split()) for line in lines]
        for line in solution:
            if any(line in one for one in plain):
                yield f"hint {level!r} holds a line of the solution: {line}"


def _after(lesson: Lesson) -> Iterator[str]:
    lines = lesson.after.splitlines()
    if any(line.startswith("```") for line in lines):
        yield f'{WORDS} has a code block without a name; begin it with lines: "Another way, NAME:", "", "```python"'
    if not lines or not lines[-1].startswith("Next:"):
        yield f'{WORDS} must end with a line "Next: …"'
    explanation = "\n".join(line for line in lines if not line.startswith("Next:"))
    if len(explanation.strip("\n").splitlines()) > MOST_AFTER_LINES:
        yield f"{WORDS} explains in more than {MOST_AFTER_LINES} lines"
    yield from _too_wide([*lines, *"\n".join(lesson.ways.values()).splitlines()], WORDS)


def _too_wide(lines: list[str], where: str) -> Iterator[str]:
    if (widest := max(map(len, lines), default=0)) > WIDEST:
        yield f"{where} has a line of {widest} characters; at most {WIDEST}"


def _solution_lines(lesson: Lesson) -> list[str]:
    """Lines of the solution that the learner is to write: those that start.py does not have."""
    start = {" ".join(line.split()) for line in lesson.text("start.py").splitlines()}
    lines = [" ".join(line.partition("  #")[0].split()) for line in lesson.text("solution.py").splitlines()]
    return [line for line in lines if len(line) >= SHORTEST and line not in start and not line.startswith(("#", '"'))]


def _same_names(lesson: Lesson) -> Iterator[str]:
    start, solution = (_names(lesson.text(file)) for file in ("start.py", "solution.py"))
    if different := ", ".join(sorted(start ^ solution)):
        yield f"start.py and solution.py must define the same names; only one of them defines {different}"


def _names(source: str) -> set[str]:
    """Functions, classes and values at top level."""
    body = ast.parse(source).body
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in body if isinstance(node, ast.AnnAssign)]
    names = {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return names | {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def _check(lesson: Lesson, checker: AnswerChecker, report: LessonReport, source: str) -> tuple[str, str, str]:
    """The status of an answer, the name of its first mistake, and that name or else a sentence."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / lesson.file_name
        path.write_text(source, encoding="utf-8")
        for used in checker.exercise(lesson).uses:
            shutil.copyfile(lesson.folder.parent / used / "solution.py", Path(folder) / f"00_{used}.py")
        checked = checker.check(lesson, path)
    report.seconds = max(report.seconds, checked.seconds)
    verdict = checked.verdict
    name, says = (verdict.mistakes[0].name, verdict.mistakes[0].says) if verdict.mistakes else ("", "")
    return verdict.status, name, name or verdict.problem or says


def _given(lesson: Lesson, passes: bool, check: Check) -> Iterator[str]:
    """What is wrong with start.py and solution.py, which are run."""
    status, _, says = check(lesson.text("start.py"))
    if passes and status != "right":
        yield f"start.py must pass, as exercise.py says, but: {says}"
    if not passes and status != "wrong":
        yield f"start.py must fail, but it is {says or 'right'}"
    elif not passes and not says:
        yield "start.py fails without a sentence that helps"
    status, _, says = check(lesson.text("solution.py"))
    if status != "right":
        yield f"solution.py must pass, but: {says}"


def _others(lesson: Lesson, least_wrong: int, least_ways: int, check: Check, report: LessonReport) -> Iterator[str]:
    """What is wrong with wrong answers and other right ones, which are run."""
    answers, named = lesson.wrong, 0
    for one in answers or ():
        status, name, says = check(one.source)
        if status == "wrong" and name == one.expected:
            named += 1
        else:
            yield f"{WRONG}, {one.name} must be named {one.expected!r}, but: {says or status}"
    report.wrong = None if answers is None and least_wrong else named
    if answers is not None and len(answers) < least_wrong:
        yield f"{WRONG} has {len(answers)} wrong answers; at least {least_wrong}"
    for name, code in lesson.ways.items():
        status, _, says = check(with_definitions(lesson.text("solution.py"), code))
        if status == "right":
            report.ways += 1
        else:
            yield f"{WORDS}, {name} must pass, but: {says}"
    if (count := len(lesson.ways)) < least_ways:
        yield f"{WORDS} has {count} other ways; at least {least_ways}"


def with_definitions(source: str, code: str) -> str:
    r"""The source with the functions, classes and methods of `code` in place of its own; new ones are added.

    >>> usual = "class A:\n    def f(self):\n        return 1\n\n    def g(self):\n        return 2\n"
    >>> print(with_definitions(usual, "class A:\n    def g(self):\n        return 1 + 1"))
    class A:
    <BLANKLINE>
        def f(self):
            return 1
    <BLANKLINE>
        def g(self):
            return 1 + 1
    """
    tree = ast.parse(source)
    _put(tree.body, ast.parse(code).body)
    return ast.unparse(tree)


def _put(body: list[ast.stmt], new: list[ast.stmt]) -> None:
    places = {getattr(one, "name", None): at for at, one in enumerate(body)}  # of functions and classes
    for one in new:
        at = places.get(getattr(one, "name", ""), len(body))
        old = body[at] if at < len(body) else None
        if isinstance(old, ast.ClassDef) and isinstance(one, ast.ClassDef):
            _put(old.body, one.body)
        else:
            body[at : at + 1] = [one]
