"""How a run ended: one word for a program, one sentence for a person, and the numbers that came back.

Everything here that a submission can influence is data from an untrusted process: bounded, and made printable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from regard.school.sandbox.protection import ProtectionReport

SENTENCES = {
    "finished": "It ran to the end.",
    "ended early": "It ended its process before it returned a result.",
    "out of memory": "It needed more memory than it may have.",
}
LONGEST_MESSAGE = 4000  # characters
MOST_LINES = 40


@dataclass(frozen=True)
class FailedLine:
    """A line of the submission that an exception passed through."""

    file: str  # as the submission names it: the file's name, or its path in the submission's folder
    line: int
    function: str


@dataclass(frozen=True)
class SubmissionFailure:
    """The exception that a submission raised, as its process described it."""

    type: str
    message: str
    stage: str  # "load" while it was imported, "run" while it was used, "driver" in the driver's own code
    lines: tuple[FailedLine, ...] = ()  # of the submission, the outermost first


@dataclass(frozen=True)
class Outcome:
    """How a run ended, and what it returned."""

    word: str
    sentence: str
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    values: Any = None
    failure: SubmissionFailure | None = None
    output: str = ""  # stdout and stderr
    seconds: float = 0.0
    protection: ProtectionReport = field(default_factory=ProtectionReport)

    @property
    def finished(self) -> bool:
        return self.word == "finished"

    @property
    def failure_to_load(self) -> SubmissionFailure | None:
        """The exception that the submission raised while it was imported; None if it ended in another way."""
        is_load = self.word == "failed" and self.failure is not None and self.failure.stage == "load"
        return self.failure if is_load else None


def with_last_line(outcome: Outcome, file: str) -> Outcome:
    """The outcome of a person's own file: if time was over, with the line of the file that ran; and no dump."""
    printed, found, dump = outcome.output.partition("Timeout (")
    if not found or not re.match(r"\d+:\d\d:\d\d(\.\d+)?\)!\n", dump):
        return outcome
    frames = re.findall(r'  File "(.+)", line (\d+) in', dump)
    line = next((line for name, line in frames if os.path.abspath(name) == os.path.abspath(file)), "")
    sentence = outcome.sentence
    if line and outcome.word == "out of time":
        sentence = f"{sentence.rstrip('.')}, in line {line}."
    return replace(outcome, sentence=sentence, output=printed)


def read_failure(values: object) -> SubmissionFailure | None:
    """The failure that a submission's process reported; None if there is none. ValueError if it is no failure."""
    if values is None:
        return None
    if not isinstance(values, dict) or not isinstance(values.get("lines"), list):
        raise ValueError("its failure is not {type, message, stage, lines}")
    if values.get("stage") not in ("driver", "load", "run"):
        raise ValueError("its failure has no stage")
    lines = []
    for one in values["lines"][:MOST_LINES]:
        if not isinstance(one, list) or len(one) != 3 or type(one[1]) is not int or not 0 <= one[1] < 1 << 31:
            raise ValueError("a line of its failure is not [file, line, function]")
        lines.append(FailedLine(printable_text(one[0], 200), one[1], printable_text(one[2], 200)))
    kind, message = printable_text(values.get("type"), 200), printable_text(values.get("message"), LONGEST_MESSAGE)
    return SubmissionFailure(kind, message, values["stage"], tuple(lines))


def printable_text(text: object, longest: int) -> str:
    r"""A text from outside without control characters, so that it can do nothing to a terminal; lines and tabs stay.

    >>> print(printable_text("red: \x1b[31m\nend", 100))
    red: \x1b[31m
    end
    """
    if not isinstance(text, str):
        raise ValueError("a text of its failure is no text")
    shown = text if len(text) <= longest else text[:longest] + " …"
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in shown)
