"""The Triton kernels can be built for a GPU, which Triton's interpreter does not show. Figures: test_launch.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("Triton's interpreter builds nothing", allow_module_level=True)


@pytest.mark.slow
def test_every_kernel_can_be_built_with_nothing_and_with_everything_hidden_and_added():
    """In a process of its own, which pretends that there is a Hopper GPU."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "build_triton.py")],
        env=os.environ | {"TRITON_DEFAULT_FP_FUSION": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    built = {line.split()[0]: [int(size) for size in line.split()[1:]] for line in done.stdout.splitlines()}
    assert list(built) == ["log_sums", "one_sweep", "pick"], done.stderr[-2000:]
    for sizes in built.values():
        assert sizes[0] != sizes[1]  # what is not asked for is not in the program
