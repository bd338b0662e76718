"""Watch mode of `regard learn`: one exercise on the screen, checked whenever its file is saved, and single keys."""

from __future__ import annotations

import os

import typer

from regard.commands.keyboard import END, Keyboard
from regard.course.answers import AnswerChecker, CheckedAnswer, check_learner
from regard.course.courses import Lesson
from regard.course.learner import LearnerFolder
from regard.course.watching import EVERY, SavedFiles
from regard.show.lessons import colored, hints_text, lesson_heading, lesson_list, next_step, result_text
from regard.show.table import terminal_width, wrapped

_CLEAR = "\x1b[2J\x1b[H"  # what was on the screen can still be scrolled to in most terminals
_QUIT = ("q", END)


class WatchMode:
    """One exercise at a time: its task, the verdict on what was saved last, hints, and the keys.

    Saving the file of another exercise goes to that one.
    """

    def __init__(self, folder: LearnerFolder, lesson: Lesson) -> None:
        self.folder, self.lesson = folder, lesson
        self.checked: CheckedAnswer | None = None
        self.hints: list[tuple[str, str]] = []
        self.message = ""  # an answer to a key
        self.is_list = False  # the list of exercises is on the screen
        self._saved = SavedFiles(folder.files())

    def run(self) -> None:
        """Until q, Ctrl-D or Ctrl-C."""
        try:
            with Keyboard() as keyboard, AnswerChecker() as checker:
                self.check(checker)
                while self._step(keyboard, checker):
                    pass
        finally:
            typer.echo(f"\n{next_step(self.folder, terminal_width())}")

    def _step(self, keyboard: Keyboard, checker: AnswerChecker) -> bool:
        """Wait a moment for a key or a saved file; is there more to come?"""
        for key in keyboard.read(EVERY):
            if key in _QUIT:
                return False
            self.press(key, checker)
        if keyboard.is_redrawn:
            keyboard.is_redrawn = False
            self.draw()
        if saved := self._saved.saved():
            name = self.lesson.name if self.lesson.name in saved else saved[0]
            self.go_to(self.folder.course.lesson(name))
            self.check(checker)
        return True

    def press(self, key: str, checker: AnswerChecker) -> None:
        """Do what a key asks for."""
        self.message = ""
        is_list, self.is_list = self.is_list, False
        if key == "h":
            self._show_hint()
        elif key == "r":
            self.check(checker)
            return
        elif key == "l":
            self.is_list = not is_list
        elif key in ("n", "\n", "\r") and not is_list:
            if self.is_done:
                self._go_on(checker)
                return
            self.message = f"First {self.folder.file_of(self.lesson).name} must be right; h gives a hint."
        elif not is_list:
            return
        self.draw()

    @property
    def is_done(self) -> bool:
        """Is what was saved last right?"""
        return self.checked is not None and self.checked.verdict.is_right

    def go_to(self, lesson: Lesson) -> None:
        """Show another exercise; its hints so far are forgotten on the screen, not in the progress."""
        if lesson != self.lesson:
            self.lesson, self.hints = lesson, []

    def check(self, checker: AnswerChecker) -> None:
        """Check the file of this exercise, and show the verdict."""
        self.checked, self.message, self.is_list = None, "checking…", False
        self.draw()
        self._saved.note(self.lesson.name)
        try:
            self.checked, self.message = check_learner(self.folder, self.lesson, checker), ""
        except ValueError as error:  # the file is not there
            self.message = str(error)
        self.draw()

    def draw(self) -> None:
        """Write the whole screen."""
        width = terminal_width()
        blocks = []
        if self.is_list:
            blocks.append(lesson_list(self.folder, width))
        else:
            is_begun = self.checked is not None and not self.checked.is_untouched
            blocks.append(lesson_heading(self.folder, self.lesson, width, with_task=not is_begun))
            blocks += [result_text(self.lesson, self.checked, width)] if self.checked else []
            blocks += [hints_text(self.lesson, self.hints, width)] if self.hints and not self.is_done else []
        blocks += [wrapped(self.message, width)] if self.message else []
        if self.is_done and not self.is_list:
            blocks.append(next_step(self.folder, width, after=self.lesson, how="press n"))
        blocks += [f"  {self._keys()}"] if self.checked or self.is_list or self.message != "checking…" else []
        clear = "\n" if os.environ.get("TERM") == "dumb" else _CLEAR
        typer.echo(clear + "\n" + colored("\n\n".join(blocks)))

    def _keys(self) -> str:
        if self.is_list:
            return "any key: back   q quit"
        first = ["n next"] if self.is_done else ["h hint"]
        return "   ".join([*first, "l list", "r run again", "q quit"])

    def _show_hint(self) -> None:
        before = self.folder.progress.record(self.lesson.name)
        self.hints = self.folder.next_hint(self.lesson)
        if before.hints == len(self.hints) and not before.is_done:
            name = self.lesson.name
            self.message = f"There are no more hints. The solution: regard learn solution {name} --give-up"

    def _go_on(self, checker: AnswerChecker) -> None:
        """To the next exercise that is not done."""
        lesson = self.folder.after(self.lesson)
        if lesson is None:
            self.message = f"All {len(self.folder.course.lessons)} exercises are done."
            self.draw()
            return
        self.go_to(lesson)
        self.check(checker)
