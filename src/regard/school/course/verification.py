"""A course checks itself: every exercise fails unsolved, its solution passes, its wrong answers get their names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from regard.school.course.answers import AnswerChecker
from regard.school.course.courses import LEVELS, Course, Lesson, files_in

FILES = {"start.py", "solution.py", "exercise.py", "hints.md", "after.md"}
FOLDERS = {"wrong", "ways"}
WIDEST, MOST_HINT_LINES, MOST_AFTER_LINES, MOST_START_LINES = 76, 3, 12, 60
LEAST_WRONG, LEAST_WAYS = 3, 2
NAMED = "# named: "
SHORTEST = 8  # characters of a line of the solution that a hint must not hold; `return` alone says nothing


@dataclass
class LessonReport:
    """What was found in one exercise."""

    name: str
    faults: list[str] = field(default_factory=list)
    wrong: int = 0  # wrong answers that got their names
    ways: int = 0  # other ways that passed
    seconds: float = 0.0  # of the longest check


def verify_course(course: Course) -> list[str]:
    """What is wrong with the course as a whole: stray files, and folders that course.toml does not name."""
    names = {lesson.name for lesson in course.lessons}
    allowed = {"course.toml", "README.md", *names}
    found = {path.relative_to(course.folder).parts[0] for path in course.files()}
    return [f"{one} is not named in course.toml" for one in sorted(found - allowed)]


def verify_lesson(lesson: Lesson, checker: AnswerChecker) -> LessonReport:
    """Everything about one exercise. Each fault is a sentence with what to do."""
    report = LessonReport(lesson.name)
    inside = [path.relative_to(lesson.folder) for path in files_in(lesson.folder)]
    report.faults += _stray(inside)
    if missing := FILES - {str(path) for path in inside}:
        report.faults.append(f"missing: {', '.join(sorted(missing))}")
        return report
    from regard.school.exercises.soundness import unsound

    try:
        exercise = checker.exercise(lesson)
        report.faults += [*_texts(lesson), *_same_names(lesson)]
        report.faults += [f"exercise.py, {one}" for one in unsound(exercise)]
        report.faults += _answers(lesson, checker, report, exercise.passes_unsolved)
    except (ValueError, SyntaxError) as error:
        report.faults.append(str(error))
    return report


def _stray(inside: list[Path]) -> Iterator[str]:
    for path in inside:
        is_known = str(path) in FILES or (len(path.parts) == 2 and path.parts[0] in FOLDERS and path.suffix == ".py")
        if not is_known:
            yield f"stray file: {path}"


def _texts(lesson: Lesson) -> Iterator[str]:
    """Hints and explanations: complete, short, and without a line of the solution."""
    if not lesson.task:
        yield "start.py has no docstring; it is the task"
    if (count := len(lesson.text("start.py").splitlines())) > MOST_START_LINES:
        yield f"start.py has {count} lines; at most {MOST_START_LINES}"
    if tuple(lesson.hints) != LEVELS:
        yield f"hints.md has {', '.join(lesson.hints) or 'no sections'}; it needs {', '.join(LEVELS)}, in this order"
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
    after = lesson.after.splitlines()
    explanation = [line for line in after if not line.startswith("Next:")]
    if not after or not after[-1].startswith("Next:"):
        yield 'after.md must end with a line "Next: …"'
    if len("\n".join(explanation).strip("\n").splitlines()) > MOST_AFTER_LINES:
        yield f"after.md explains in more than {MOST_AFTER_LINES} lines"
    yield from _too_wide(after, "after.md")


def _too_wide(lines: list[str], where: str) -> Iterator[str]:
    widest = max(map(len, lines), default=0)
    if widest > WIDEST:
        yield f"{where} has a line of {widest} characters; at most {WIDEST}"


def _solution_lines(lesson: Lesson) -> list[str]:
    """Lines of the solution that the learner is to write: those that start.py does not have."""
    start = {" ".join(line.split()) for line in lesson.text("start.py").splitlines()}
    lines = [" ".join(line.partition("  #")[0].split()) for line in lesson.text("solution.py").splitlines()]
    return [line for line in lines if len(line) >= SHORTEST and line not in start and not line.startswith(("#", '"'))]


def _same_names(lesson: Lesson) -> Iterator[str]:
    start, solution = (_names(lesson.text(file)) for file in ("start.py", "solution.py"))
    if start != solution:
        different = ", ".join(sorted(start ^ solution))
        yield f"start.py and solution.py must define the same names; only one of them defines {different}"


def _names(source: str) -> set[str]:
    """Functions, classes and values at top level."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return names


def _answers(lesson: Lesson, checker: AnswerChecker, report: LessonReport, passes_unsolved: bool) -> Iterator[str]:
    """Run start, solution, wrong and ways."""

    def check(path: Path) -> tuple[str, str, str]:
        """Status, name and sentence of a verdict."""
        checked = checker.check(lesson, path)
        report.seconds = max(report.seconds, checked.seconds)
        verdict = checked.verdict
        first = verdict.mistakes[0] if verdict.mistakes else None
        return verdict.status, first.name if first else "", verdict.problem or (first.says if first else "")

    status, name, says = check(lesson.folder / "start.py")
    if passes_unsolved and status != "right":
        yield f"start.py must pass, as exercise.py says, but: {name or says}"
    if not passes_unsolved:
        if status != "wrong":
            yield f"start.py must fail, but it is {says or 'right'}"
        elif not says:
            yield "start.py fails without a sentence that helps"
    status, name, says = check(lesson.folder / "solution.py")
    if status != "right":
        yield f"solution.py must pass, but: {name or says}"
    for path in lesson.wrong:
        first = path.read_text(encoding="utf-8").partition("\n")[0]
        expected = first.removeprefix(NAMED).strip()
        status, name, says = check(path)
        if not first.startswith(NAMED) or not expected:
            yield f"wrong/{path.name} must begin with a line: {NAMED}NAME (here it is: {name or says or status})"
        elif status != "wrong" or name != expected:
            yield f"wrong/{path.name} must be named {expected!r}, but: {name or says or status}"
        else:
            report.wrong += 1
    for path in lesson.ways:
        status, name, says = check(path)
        if status != "right":
            yield f"ways/{path.name} must pass, but: {name or says}"
        else:
            report.ways += 1
    if not passes_unsolved and len(lesson.wrong) < LEAST_WRONG:
        yield f"wrong/ has {len(lesson.wrong)} files; at least {LEAST_WRONG}"
    if not passes_unsolved and _is_code(lesson, checker) and len(lesson.ways) < LEAST_WAYS:
        yield f"ways/ has {len(lesson.ways)} files; at least {LEAST_WAYS}"


def _is_code(lesson: Lesson, checker: AnswerChecker) -> bool:
    """Is something to be written that can be written in several ways, rather than answered?"""
    from regard.school.exercises.parts import Function, Layer

    return any(isinstance(part, (Function, Layer)) for part in checker.exercise(lesson).parts)
