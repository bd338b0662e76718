"""Submissions that attack: each ends as it must, within its limits; nothing outside changes; the supervisor lives."""

import os
import time
from pathlib import Path

import pytest
import torch

import regard
from regard.sandbox.worker import Job
from sandbox.attacks import ATTACKS, DRIVER, fill_in, variants

PACKAGE = Path(regard.__file__).parent


def states(folder: Path) -> dict[str, object]:
    """Everything about the files of a folder that could be changed."""
    return {
        str(path): (found.st_mode, found.st_uid, found.st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in sorted([folder, *folder.rglob("*")])
        if (found := path.lstat())
    }


@pytest.fixture
def victim(tmp_path):
    folder = tmp_path / "victim"
    (folder / "inside").mkdir(parents=True)
    (folder / "file").write_text("seven")
    (folder / "inside" / "file").write_text("eleven")
    return folder


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_ends_as_it_must(attack, worker, victim, tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_TEST_SECRET", "thirteen")
    submission = tmp_path / "submissions" / "homework.py"
    submission.parent.mkdir()
    submission.write_text(fill_in(attack.source, victim, os.getpid(), PACKAGE))
    before = states(tmp_path)
    x = torch.randn(3, 5)
    begin = time.monotonic()
    outcome = worker.run(Job(submission, DRIVER, {"x": x}))
    assert time.monotonic() - begin < worker.limits.wall_seconds + 3
    assert states(tmp_path) == before
    word, _, kind = attack.ends.partition(": ")
    assert word in ("*", outcome.word), outcome
    assert not kind or outcome.failure.type == kind, outcome
    if outcome.finished:
        torch.testing.assert_close(outcome.tensors["out"], x, rtol=0, atol=0)
