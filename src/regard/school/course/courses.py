"""A course is a folder: course.toml with the chapters, and one folder for each exercise.

Everything that a learner reads is read here as text: no file of an exercise is run, and torch is not needed.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.support.toml_files import read_toml

OWN_COURSE = Path(__file__).parents[1] / "lessons"
WORDS = "words.md"  # the hints, and after the heading "# after", what is shown after success
WRONG = "wrong.txt"  # for authors: it is not installed with our course
LEVELS = ("where", "why", "almost")  # of hints
DIFFICULTIES = ("easy", "medium", "hard")
NAME = re.compile(r"[a-z][a-z0-9_]*")
WAY = re.compile(r"^Another way, ([^\n]+):\n\n```python\n(.*?)\n```\n\n?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class About:
    """What a learner may want to know before an exercise: a line of [about] in course.toml."""

    minutes: int = 0  # that it takes most people; 0 if nobody has said
    level: str = ""  # one of DIFFICULTIES
    goal: str = ""  # what one can do afterwards

    def __str__(self) -> str:
        times = f"about {self.minutes} minute{'s' * (self.minutes != 1)}" if self.minutes else ""
        return ", ".join(filter(None, (times, self.level)))


@dataclass(frozen=True)
class Lesson:
    """One exercise of a course."""

    name: str
    number: int  # from 1, in the order of course.toml
    chapter: str
    folder: Path
    about: About = About()

    @property
    def file_name(self) -> str:
        """The learner's file, as 09_scale.py."""
        return f"{self.number:02}_{self.name}.py"

    @cached_property
    def title(self) -> str:
        """What it is about: the first line of exercise.py's docstring."""
        return self._docstring("exercise.py").partition("\n")[0].rstrip(".")

    @cached_property
    def task(self) -> str:
        """What is to be done: the docstring of start.py."""
        return self._docstring("start.py")

    @cached_property
    def _words(self) -> tuple[str, str]:
        hints, *after = re.split(r"^# +after *$", self.text(WORDS), maxsplit=1, flags=re.MULTILINE)
        return hints, "".join(after)

    @cached_property
    def hints(self) -> dict[str, str]:
        """The hints by their level: sections of words.md whose headings are `# where`, `# why` and `# almost`."""
        parts = re.split(r"^# +(.+?) *$", self._words[0], flags=re.MULTILINE)
        return {name: body.strip("\n") for name, body in zip(parts[1::2], parts[2::2], strict=True)}

    @cached_property
    def after(self) -> str:
        """The explanation after success, without the other ways."""
        return WAY.sub("", self._words[1]).strip("\n")

    @cached_property
    def ways(self) -> dict[str, str]:
        """Other right ways, by their names: the functions and methods that are not as in the solution."""
        return dict(WAY.findall(self._words[1]))

    @property
    def wrong(self) -> list[WrongAnswer] | None:
        """Common wrong answers, of wrong.txt; None in our course as it is installed, which is without them."""
        if (self.folder / WRONG).exists():
            return read_wrong_answers(self.text(WRONG), self.text("solution.py"))
        return None if self.folder.resolve().parent == OWN_COURSE.resolve() else []

    def text(self, file: str) -> str:
        """The text of a file of the exercise; ValueError if it is missing or no text."""
        path = self.folder / file
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ValueError(f"{path} is missing; every exercise has one") from None
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not UTF-8 text") from None

    def _docstring(self, file: str) -> str:
        try:
            return ast.get_docstring(ast.parse(self.text(file))) or ""
        except SyntaxError as error:
            raise ValueError(f"{self.folder / file}, line {error.lineno}: {error.msg}") from None


@dataclass(frozen=True)
class Course:
    """A course: its title and its exercises, in order."""

    folder: Path
    title: str
    lessons: tuple[Lesson, ...]
    command: str = "regard learn"  # that goes on with it

    @property
    def is_own(self) -> bool:
        return self.folder.resolve() == OWN_COURSE.resolve()

    def lesson(self, name: str) -> Lesson:
        """The exercise of this name, number or file name, as a learner types it: scale, 9, 09_scale or 09_scale.py."""
        bare = Path(name).name.lower().removesuffix(".py")
        number, _, rest = bare.partition("_")
        for one in self.lessons:
            if one.name in (bare, rest if number.isdigit() else bare) or (bare.isdigit() and one.number == int(bare)):
                return one
        names = [one.name for one in self.lessons]
        near = [one for one in names if bare and (bare in one or one in bare)] or difflib.get_close_matches(bare, names)
        hint = f"did you mean {' or '.join(near[:3])}?" if near else "regard learn list names them"
        raise ValueError(f"the course has no exercise {name}; {hint}")

    @cached_property
    def hash(self) -> str:
        """SHA-256 of what is asked and checked: all files but hints, explanations, wrong answers."""
        total = hashlib.sha256()
        for path in (one for one in files_in(self.folder) if one.name not in (WRONG, WORDS)):
            content = path.read_bytes()
            total.update(f"{path.relative_to(self.folder).as_posix()}\0{len(content)}\0".encode())
            total.update(content)
        return total.hexdigest()


def files_in(folder: Path) -> list[Path]:
    """All files in a folder and below; no hidden ones, and none that Python makes."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    parts = {path: path.relative_to(folder).parts for path in paths}
    return [path for path in paths if not any(one.startswith(".") or one == "__pycache__" for one in parts[path])]


def read_course(folder: Path) -> Course:
    """The course in a folder; ValueError if its course.toml is missing or not as it must be."""
    file = folder / "course.toml"
    if not file.is_file():
        raise ValueError(f"{folder} is no course: it has no course.toml")
    values = read_toml(file)
    if unknown := set(values) - {"title", "chapter", "about"}:
        kinds = "a title, [[chapter]] tables and [about]"
        raise ValueError(f"{file}: {', '.join(sorted(unknown))} is unknown; it has {kinds}")
    title, chapters = values.get("title"), values.get("chapter")
    if not isinstance(title, str) or not title:
        raise ValueError(f'{file} needs a title: title = "…"')
    if not isinstance(chapters, list) or not chapters:
        raise ValueError(f"{file} needs at least one [[chapter]], with a title and exercises")
    pairs = [pair for number, one in enumerate(chapters, 1) for pair in _chapter(one, f"{file}, chapter {number}")]
    names = [name for _, name in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{file} names {', '.join(twice)} more than once")
    about = _about(values.get("about", {}), names, file)
    lessons = [
        Lesson(name, number, chapter, folder / name, about.get(name, About()))
        for number, (chapter, name) in enumerate(pairs, 1)
    ]
    if missing := [one.name for one in lessons if not one.folder.is_dir()]:
        raise ValueError(f"{file} names {', '.join(missing)}, but there is no such folder in {folder}")
    return Course(folder, title, tuple(lessons))


def _about(table: Any, names: Sequence[str], file: Path) -> dict[str, About]:
    """The lines of [about]: NAME = [minutes, level, goal]."""
    if not isinstance(table, dict) or not all(map(_is_about, table.values())):
        rule = f'NAME = [minutes, "{"|".join(DIFFICULTIES)}", "what one can do afterwards"]'
        raise ValueError(f"{file}: a line of [about] must be {rule}")
    if stray := sorted(set(table) - set(names)):
        raise ValueError(f"{file}: [about] has {', '.join(stray)}, which no chapter names")
    return {name: About(*line) for name, line in table.items()}


def _is_about(line: Any) -> bool:
    if not isinstance(line, list) or len(line) != 3:
        return False
    minutes, level, goal = line
    return type(minutes) is int and minutes > 0 and level in DIFFICULTIES and isinstance(goal, str) and goal != ""


def _chapter(table: Any, where: str) -> Iterator[tuple[str, str]]:
    """The exercises of a chapter, each with the title of the chapter."""
    if not isinstance(table, dict) or set(table) != {"title", "exercises"}:
        raise ValueError(f"{where} must have a title and exercises, and nothing else")
    title, names = table["title"], table["exercises"]
    if not isinstance(title, str) or not isinstance(names, list) or not names:
        raise ValueError(f"{where}: title is a text, exercises a list of names")
    for name in names:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ValueError(f"{where}: {name!r} must be lower-case letters, digits and _, as in causal_mask")
        yield title, name


def read_lessons(folders: Sequence[Path]) -> Course:
    """Exercises alone, each given by its folder, as a course without a course.toml."""
    lessons = [Lesson(one.resolve().name, number, "", one) for number, one in enumerate(folders, 1)]
    if missing := [str(one.folder) for one in lessons if not (one.folder / "exercise.py").is_file()]:
        raise ValueError(f"no exercise.py in {', '.join(missing)}; give a course, or folders of exercises")
    return Course(folders[0].resolve().parent, "", tuple(lessons))


@dataclass(frozen=True)
class WrongAnswer:
    """A wrong answer: what the author calls it, the name that the check must give it, and its text."""

    name: str
    expected: str
    source: str


def read_wrong_answers(text: str, solution: str) -> list[WrongAnswer]:
    r"""The wrong answers in a wrong.txt: each is an edit of solution.py, below the name that the check must give it.

    >>> read_wrong_answers("# not doubled\n\n@ same\n- x + x\n+ x\n", "def twice(x):\n    return x + x\n")
    [WrongAnswer(name='same', expected='not doubled', source='def twice(x):\n    return x\n')]

    The lines with `-` are replaced by those with `+`, where they occur first; without `+`, they are deleted. Blank
    lines separate the edits of one answer. Without `-`, the lines with `+` are the whole answer. What comes before the
    first `#` is for people. ValueError if it is not written so, or an edit does not fit the solution.
    """
    answers = []
    for section in re.split(r"^#(?: +|$)", text, flags=re.MULTILINE)[1:]:
        expected, *parts = section.split("\n@ ")
        for part in parts:
            name, _, body = part.partition("\n")
            if not expected.strip():
                raise ValueError(f"{WRONG}, {name} has no name above it; write a line: # NAME")
            answers.append(WrongAnswer(name.strip(), expected.strip(), _edited(solution, body, f"{WRONG}, {name}")))
    return answers


def _edited(source: str, body: str, where: str) -> str:
    edits = [block.strip("\n").splitlines() for block in body.split("\n\n") if block.strip("\n")]
    if not edits:
        raise ValueError(f"{where}: there is no edit; write lines that begin with - and +")
    for lines in edits:
        if stray := [line for line in lines if line[:2] not in ("-", "- ", "+", "+ ")]:
            raise ValueError(f"{where}: {stray[0]!r} begins with neither - nor +")
        minus, plus = ([line[2:] for line in lines if line[0] == sign] for sign in "-+")
        end = "" if minus and plus else "\n"  # whole lines are deleted, or written
        old, new = ("\n".join(one) + end * bool(one) for one in (minus, plus))
        if old not in source:
            raise ValueError(f"{where}: solution.py does not have: {old.strip()}")
        source = source.replace(old, new, 1) if old else new
    return source
