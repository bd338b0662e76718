"""A whole file: the verdicts on everything in it that claims to be attention, for `check` and for `grade` alike."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from regard.school.check.blocks.wiring import check_wiring
from regard.school.check.check import check_subject
from regard.school.check.explain.exceptions import missing_import
from regard.school.check.learner_code.loading import LearnerFile
from regard.school.check.learner_code.protocol import SkippedFacts
from regard.school.check.learner_code.selection import AnySubject, Selection, select
from regard.school.check.learner_code.subject import NotHere, Subject
from regard.school.check.learner_code.submission import DOES_NOT_RUN
from regard.school.check.learner_code.text_hints import own_text
from regard.school.check.request import Request
from regard.school.check.verdict import Verdict, with_code
from regard.school.sandbox.source_text import place_of_line, with_cells
from regard.school.sandbox.stand_ins import Unavailable
from regard.support.vocabulary import is_named_attention

NOTHING = "it defines no attention layer"
MISSING = {
    "ModuleNotFoundError": "it imports what is not installed here",
    "FileNotFoundError": "it reads a file that is not here",
    "EOFError": "it asks for input",
}
_MOST_NOTES = 3  # on statements that were skipped


def check_all(file: LearnerFile[AnySubject], request: Request, name: str = "") -> Iterator[Verdict]:
    """The verdicts on a file: on the class or function of this name, or on all that claims to be attention.

    Raises ValueError if it has none of this name.
    """
    own = {one.described["name"] for one in file.own}
    lost = [one for one in file.skipped if one["defines"] and one["defines"] not in own]
    lost = [one for one in lost if (one["defines"] == name if name else is_named_attention(one["defines"]))]
    is_nothing = bool(lost) or (not file.own and bool(file.failures))
    selection = Selection([] if is_nothing else file.subjects(name)) if name else select(file.own)
    notes = _notes_on_skipped([one for one in file.failures if one not in lost], file.source)
    for verdict in _verdicts(file, selection, lost, request, name):
        verdict.notes += notes
        notes = []  # they stand with the first
        verdict.problem = with_cells(verdict.problem, file.source)
        yield verdict


def _verdicts(
    file: LearnerFile[AnySubject],
    selection: Selection[AnySubject],
    lost: Sequence[SkippedFacts],
    request: Request,
    name: str,
) -> Iterator[Verdict]:
    yield from (_on_lost(one, file) for one in lost)
    verdict = None
    for subject in selection.judged:
        verdict = _judged(subject, request)
        parts = [part for part, outer in selection.parts if outer is subject]
        is_explained = not verdict.problem and all(one.name for one in verdict.mistakes)
        if parts and is_explained:
            names = " and ".join(part.described["name"] for part in parts)
            verb = "are parts" if len(parts) > 1 else "is a part"
            verdict.notes.append(f"{names} {verb} of {subject.described['name']}, and checked with it.")
        yield verdict
        yield from () if is_explained else (_judged(part, request) for part in parts)
    if verdict is not None:
        yield from _around(selection.wholes, request, verdict)
    elif not lost:
        yield _on_nothing(file, name)


def _judged(subject: Subject, request: Request) -> Verdict:
    """The verdict on one; what a plain class does while it is trained is not known."""
    verdict = check_subject(subject, request)
    is_switched = re.search(r"\btraining\b", own_text(subject.source, subject.described["name"]))
    if verdict.is_right and subject.described.get("is_plain") and is_switched:
        verdict.problem = "it has a dropout of its own, which no check knows; without it, it is right"
    own = own_text(subject.source, subject.described["name"])
    if verdict.is_right and subject.described.get("is_plain") and re.search(r"def \w*backward\w*\(", own):
        verdict.problem = "it computes gradients by itself, which no check knows; without them, it is right"
    return verdict


def _around(wholes: Sequence[Subject], request: Request, attention: Verdict) -> Iterator[Verdict]:
    """Verdicts on what is wrong around the attention, in the blocks and models of the file; what is right is a note."""
    for subject in wholes:
        try:
            wiring = check_wiring(subject, request)
        except NotHere:
            continue
        if wiring is not None and wiring.findings:
            findings = with_code(wiring.findings, subject.source)
            yield Verdict(subject.described["name"], "a block", findings, file=subject.file)
        elif wiring is not None and wiring.note and wiring.note not in attention.notes:
            attention.notes.append(wiring.note)


def _on_lost(one: SkippedFacts, file: LearnerFile[AnySubject]) -> Verdict:
    """The verdict on attention that could not be defined."""
    if one["type"] == Unavailable.__name__:
        return Verdict(one["defines"], "", file=file.file, problem=f"it needs {one['message']}")
    return _does_not_run(one, one["defines"], file)


def _on_nothing(file: LearnerFile[AnySubject], name: str) -> Verdict:
    """The verdict on a file that has nothing to check, which may be because it does not run."""
    shown = name or file.file.replace("\\", "/").rpartition("/")[2]
    if not file.failures:
        return Verdict(shown, "", file=file.file, problem=NOTHING)
    first = file.failures[0]
    if first["type"] in MISSING:
        return Verdict(shown, "", file=file.file, problem=f"{MISSING[first['type']]}: {first['message']}")
    return _does_not_run(first, shown, file)


def _does_not_run(one: SkippedFacts, name: str, file: LearnerFile[AnySubject]) -> Verdict:
    finding = missing_import(one["type"], one["message"], one["line"])
    finding = finding or DOES_NOT_RUN.found(f"The file does not run: {_error(one)}.", one["line"])
    return Verdict(name, "", with_code([finding], file.source), file=file.file)


def _notes_on_skipped(skipped: Sequence[SkippedFacts], source: str) -> list[str]:
    lines = [place_of_line(source, one["line"]) for one in skipped]
    notes = [f"{where.capitalize()} was skipped: {_error(one)}." for where, one in zip(lines, skipped, strict=True)]
    more = len(notes) - _MOST_NOTES
    return [*notes[:_MOST_NOTES], *([f"{more} more statements were skipped."] if more > 0 else [])]


def _error(one: SkippedFacts) -> str:
    if one["type"] == "SyntaxError":
        return f"{one['message']} (SyntaxError)"
    if one["type"] == "Stopped":
        return one["message"]
    return f"{one['type']}: {one['message']}".rstrip(":. ")
