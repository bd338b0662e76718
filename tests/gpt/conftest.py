"""Directories that many tests begin with."""

import pytest

from gpt.directories import ours, theirs
from regard.gpt.checkpoint.saving import save


@pytest.fixture
def gpt2(tmp_path):
    """The directory of a GPT-2, as transformers wrote it."""
    theirs("gpt2").save_pretrained(tmp_path / "gpt2")
    return tmp_path / "gpt2"


@pytest.fixture
def sharded(tmp_path):
    save(ours(), tmp_path / "sharded", shard_size=10_000)
    return tmp_path / "sharded"
