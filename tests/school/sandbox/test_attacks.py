"""Submissions that attack: each ends as it must, within its limits; nothing outside changes; the supervisor lives.

Hundreds of variants of them: python tests/sandbox/torture.py
"""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard.school.sandbox.worker import Job
from school.sandbox.attacks import ATTACKS, BY_NAME, DRIVER, WAYS, aim, variants, with_f
from school.sandbox.conftest import SMALL
from school.sandbox.torture import PACKAGE, closed_to_others, ends_as_it_must, make_victim, states

pytestmark = pytest.mark.slow
TORTURE = Path(__file__).with_name("torture.py")
NOBODY = 65534
MAIN = [
    "a fork bomb", "a program", "a list without end", "limits raised", "deleting", "writing outside", "truncating",
    "writing to itself", "permissions", "times", "a hard link", "many files", "folders without permissions",
    "importing regard without the finder", "reading regard", "reading its neighbours", "the worker's memory",
    "the supervisor's environment", "ptrace", "killing its parent", "killing the supervisor", "killing all",
    "limits of the supervisor", "processors of the supervisor", "a socket", "namespaces", "os._exit",
    "garbage to all descriptors",
]  # fmt: skip
# An interpreter in a home that others may not enter is put where they may, for this process and its children only.
AS_NOBODY = """
set -e
if [ -n "$CLOSED" ]; then
  mount --bind "$PREFIX" "$STASH"
  mount -t tmpfs -o mode=755 tmpfs "$CLOSED"
  mkdir -p "$PREFIX"
  mount --bind "$STASH" "$PREFIX"
fi
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
"""


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_ends_as_it_must(attack, worker, tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_TEST_SECRET", "thirteen")
    submission = tmp_path / "submissions" / "homework.py"
    submission.parent.mkdir()
    submission.write_text(with_f(aim(attack.source, make_victim(tmp_path / "victim"), os.getpid(), PACKAGE)))
    before, x = states(tmp_path), torch.randn(3, 5)
    # Time is short only for those that use it up: the others must not run out of it on a busy machine.
    limits = replace(SMALL, wall_seconds=0.4) if attack.ends in ("out of time", "*") else SMALL
    outcome = worker.run(Job(submission, DRIVER, {"x": x}, limits=limits))
    assert states(tmp_path) == before
    assert ends_as_it_must(attack, outcome), outcome
    if outcome.finished:
        torch.testing.assert_close(outcome.tensors["out"], x, rtol=0, atol=0)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can become an ordinary user")
@pytest.mark.skipif(not shutil.which("setpriv") or not shutil.which("unshare"), reason="needs setpriv and unshare")
def test_the_main_attacks_end_as_they_must_for_an_ordinary_user_too(worker, tmp_path):
    if closed_to_others(sys.prefix) or closed_to_others(str(PACKAGE)) or closed_to_others(str(TORTURE)):
        pytest.skip("an ordinary user cannot read these files")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(PACKAGE.parent),
        "CLOSED": closed_to_others(sys.base_prefix) or "",
        "PREFIX": os.path.realpath(sys.base_prefix),
        "STASH": str(tmp_path),
    }
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", AS_NOBODY, "sh"]
    program = [sys.executable, "-B", str(TORTURE), "--workers", "1", "--names", *MAIN]
    done = subprocess.run([*command, *program], env=environment, capture_output=True, text=True, cwd="/")
    if "mount" in done.stderr and "permission denied" in done.stderr.lower():
        pytest.skip("mounting is not permitted here")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(MAIN)} submissions of {len(ATTACKS)} attacks, uid {NOBODY}" in done.stdout


def test_there_are_more_than_500_variants_with_names_of_their_own():
    names = [name for name, _ in variants()]
    assert len(names) == len(set(names)) == len(ATTACKS) * len(WAYS)
    assert len(names) > 500
    assert set(MAIN) <= set(BY_NAME)
