"""What only a GPU can show; bench/check_gpu.py is the same without pytest."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu


def test_every_path_is_as_exact_on_the_gpu_as_pytorchs_own():
    script = Path(__file__).parent.parent / "bench" / "check_gpu.py"
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
