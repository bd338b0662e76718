"""Tests of the school do not trace lines while shapes are checked: the wrappers of that check would be traced, too."""

import os

import pytest

from regard.school.check.learner_code.recording import Lines


@pytest.fixture(autouse=True)
def untraced(request, monkeypatch):
    if os.environ.get("REGARD_CHECK_SHAPES") and "lines_not_run" not in request.node.nodeid:
        monkeypatch.setattr(Lines, "__enter__", lambda self: None)
        monkeypatch.setattr(Lines, "__exit__", lambda self, *error: None)
