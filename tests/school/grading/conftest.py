"""One class of ten, graded once for all tests; and one worker for single submissions."""

import pytest

from regard.school.grading.grade import grade
from regard.school.grading.key import GradeKey
from regard.school.sandbox.limits import MiB, RunLimits
from regard.school.sandbox.protection import ProtectionMissing
from regard.school.sandbox.worker import Worker
from school.grading.submissions import SUBMISSIONS

CAUSAL = GradeKey(task="causal self-attention", name="CausalAttention", seed=1234567)


@pytest.fixture(scope="session")
def graded(tmp_path_factory):
    """The folder, what it held before, the report, and what was told on the way."""
    folder = tmp_path_factory.mktemp("class")
    for name, (source, *_) in SUBMISSIONS.items():
        (folder / name).write_text(source)
    before = contents(folder)
    told = []
    try:
        report = grade(folder, CAUSAL, seconds=5, progress=lambda *one: told.append(one))
    except ProtectionMissing as error:
        pytest.skip(str(error))
    return folder, before, report, told


@pytest.fixture(scope="session")
def worker():
    with Worker(RunLimits(output_bytes=MiB)) as one:
        try:
            assert one.protection.missing == {}
        except ProtectionMissing as error:
            pytest.skip(str(error))
        yield one


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
