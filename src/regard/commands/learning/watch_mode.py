"""Watch mode of `regard learn`: one exercise on the screen, checked whenever its file is saved, and single keys."""

import os
import shutil
import sys

import typer

from regard.commands.learning.lesson_picker import LessonPicker
from regard.commands.terminal.keyboard import END, Keyboard
from regard.school.course.answers import AnswerChecker, CheckedAnswer, check_learner
from regard.school.course.courses import Lesson
from regard.school.course.learner import EVERY, LearnerFolder, SavedFiles
from regard.school.drawing.lessons import colored, hints_text, lesson_heading, next_step, result_text
from regard.school.sandbox.process import RunCancelled
from regard.show.terminal.table import terminal_width, wrapped
from regard.support.printable import styled

_CLEAR = "\x1b[2J\x1b[H"  # what was on the screen can still be scrolled to in most terminals
_QUIT = ("q", END)
_FRAME = 10  # lines of a screen around a verdict


class WatchMode:
    """One exercise at a time: its task, the verdict on what was saved last, hints, and the keys.

    Saving the file of another exercise goes to that one.
    """

    def __init__(self, folder: LearnerFolder, lesson: Lesson) -> None:
        self.folder, self.lesson = folder, lesson
        self.checked: CheckedAnswer | None = None
        self.hints: list[tuple[str, str]] = []
        self.message = ""  # an answer to a key
        self.list: LessonPicker | None = None  # the list of exercises, if it is on the screen
        self.shows_ways = self.has_more = False  # other ways are shown even if they do not fit; w would show them
        self._saved = SavedFiles(folder.files())
        self._keys_ahead, self._saved_ahead = "", list[str]()  # what came while an answer was checked

    def run(self) -> None:
        """Until q, Ctrl-D or Ctrl-C."""
        try:
            with Keyboard() as keyboard, AnswerChecker() as checker:
                checker.is_cancelled = lambda: self._is_overtaken(keyboard)
                self.check(checker)
                while self._step(keyboard, checker):
                    pass
        finally:
            typer.echo(f"\n{next_step(self.folder, terminal_width())}")

    def _step(self, keyboard: Keyboard, checker: AnswerChecker) -> bool:
        """Wait a moment for a key or a saved file; is there more to come?"""
        keys, self._keys_ahead = self._keys_ahead or keyboard.read(EVERY), ""
        for at, key in enumerate(keys):
            if key in _QUIT:
                return False
            self.press(key, checker)
            if self._keys_ahead:
                self._keys_ahead = keys[at + 1 :] + self._keys_ahead
                break
        if keyboard.is_redrawn:
            keyboard.is_redrawn = False
            self.draw()
        saved, self._saved_ahead = self._saved_ahead or self._saved.saved(), []
        if saved:
            name = self.lesson.name if self.lesson.name in saved else saved[0]
            self.go_to(self.folder.course.lesson(name))
            self.check(checker)
        return True

    def _is_overtaken(self, keyboard: Keyboard) -> bool:
        """While an answer is checked: was another saved, or q pressed? Other keys wait for the verdict."""
        self._keys_ahead += keyboard.read(0)
        if keyboard.is_redrawn:
            keyboard.is_redrawn = False
            self.draw()
        self._saved_ahead = self._saved.saved()
        return bool(self._saved_ahead) or any(key in self._keys_ahead for key in _QUIT)

    def press(self, key: str, checker: AnswerChecker) -> None:
        self.message = ""
        if self.list and self.list.press(key):
            self.draw()
            return
        picker, self.list = self.list, None
        if picker and key in ("\n", "\r"):
            self.go_to(picker.chosen)
            self.check(checker)
            return
        if key == "h":
            self._show_hint()
        elif key == "r":
            self.check(checker)
            return
        elif key == "l":
            self.list = None if picker else LessonPicker(self.folder, self.lesson)
        elif key == "w" and self.has_more:
            self.shows_ways = True
        elif key in ("n", "\n", "\r") and not picker:
            self._go_on(checker)
            return
        elif not picker:
            return
        self.draw()

    def _go_on(self, checker: AnswerChecker) -> None:
        """Show the exercise after this one, or say why there is none."""
        if not self.may_go_on:
            self.message = f"First {self.folder.file_of(self.lesson).name} must be right; h gives a hint."
        elif (lesson := self.folder.after(self.lesson)) is None:
            self.message = f"All {len(self.folder.course.lessons)} exercises are done."
        else:
            self.go_to(lesson)
            self.check(checker)
            return
        self.draw()

    @property
    def is_done(self) -> bool:
        """Is what was saved last right?"""
        return self.checked is not None and self.checked.verdict.is_right

    @property
    def may_go_on(self) -> bool:
        """Is it right, or was it right before? Who has done an exercise may break it again, and go on."""
        return self.is_done or self.folder.progress.record(self.lesson.name).is_done

    def go_to(self, lesson: Lesson) -> None:
        """Show another exercise; its hints so far are forgotten on the screen, not in the progress."""
        if lesson != self.lesson:
            self.lesson, self.hints = lesson, []

    def check(self, checker: AnswerChecker) -> None:
        """Check the file of this exercise, and show the verdict."""
        self.checked, self.message = None, "checking…"
        self.list = None
        self.shows_ways = self.has_more = False
        self.draw()
        self._saved.note(self.lesson.name)
        try:
            self.checked, self.message = check_learner(self.folder, self.lesson, checker), ""
        except ValueError as error:  # the file is not there
            self.message = str(error)
        except RunCancelled:
            return  # what came instead is next
        self.draw()

    def draw(self) -> None:
        width = terminal_width()
        blocks = []
        if self.list:
            blocks.append(self.list.text(width, shutil.get_terminal_size((80, 24)).lines))
        else:
            is_new = self.checked is None or self.checked.is_untouched
            blocks.append(lesson_heading(self.folder, self.lesson, width, with_task=is_new))
            blocks += [self._result(width)] if self.checked else []
            blocks += [hints_text(self.lesson, self.hints, width)] if self.hints and not self.is_done else []
        blocks += [wrapped(self.message, width)] if self.message else []
        if self.is_done and not self.list:
            blocks.append(next_step(self.folder, width, after=self.lesson, how="press n"))
        blocks += [f"  {self._keys()}"] if self.checked or self.list or self.message != "checking…" else []
        clear = "\n" if os.environ.get("TERM") == "dumb" else _CLEAR
        typer.echo(clear + "\n" + colored("\n\n".join(blocks)), file=styled(sys.stdout))

    def _result(self, width: int) -> str:
        """The verdict. What comes after success and does not fit the screen, the key w shows."""
        assert self.checked is not None
        text = result_text(self.lesson, self.checked, width)
        short = result_text(self.lesson, self.checked, width, with_ways=False)
        room = shutil.get_terminal_size((80, 24)).lines - _FRAME
        self.has_more = text != short and text.count("\n") >= room and not self.shows_ways
        return short if self.has_more else text

    def _keys(self) -> str:
        if self.list:
            return self.list.keys
        first = ["n next"] if self.may_go_on else []
        first += ["w other ways"] if self.has_more else [] if self.is_done else ["h hint"]
        return "   ".join([*first, "l list", "r run again", "q quit"])

    def _show_hint(self) -> None:
        before = self.folder.progress.record(self.lesson.name)
        self.hints = self.folder.next_hint(self.lesson)
        if before.hints == len(self.hints) and not before.is_done:
            name = self.lesson.name
            self.message = f"There are no more hints. The solution: regard learn solution {name} --give-up"
