"""The list of exercises in watch mode: arrows choose one, Enter goes there."""

from regard.commands.terminal.keyboard import DOWN, UP
from regard.school.course.courses import Lesson
from regard.school.course.learner import LearnerFolder
from regard.school.drawing.lessons import lesson_list

_FRAME = 8  # lines around the exercises
_STEPS = {UP: -1, "k": -1, DOWN: 1, "j": 1}


class LessonPicker:
    """The exercises, all or those that are not done, one of them chosen."""

    keys = "up, down: choose   Enter: go there   o: open ones only   other keys: back   q quit"

    def __init__(self, folder: LearnerFolder, chosen: Lesson) -> None:
        self.folder, self.chosen, self.only_open = folder, chosen, False

    def press(self, key: str) -> bool:
        """Move, or show other exercises; is the key for that?"""
        if key == "o":
            self.only_open = not self.only_open
        elif key not in _STEPS:
            return False
        self._move(_STEPS.get(key, 0))
        return True

    def text(self, width: int, lines: int) -> str:
        """The list, in a screen of so many lines."""
        return lesson_list(self.folder, width, self.chosen, self._shown(), max(lines - _FRAME, 3))

    def _shown(self) -> list[Lesson]:
        done = {one.name for one in self.folder.records() if one.is_done}
        return [one for one in self.folder.course.lessons if not (self.only_open and one.name in done)]

    def _move(self, by: int) -> None:
        """The next one that is shown; from one that is not shown any more, the nearest after it."""
        self.only_open &= bool(self._shown())
        shown = self._shown()
        at = next((i for i, one in enumerate(shown) if one.number >= self.chosen.number), len(shown) - 1)
        self.chosen = shown[max(0, min(at + by, len(shown) - 1))]
