"""What every test stands on: shapes checked at run time on request, one seed, and no GPU test without a GPU."""

import os

import hypothesis
import jaxtyping
import pytest
import torch

CHECK_SHAPES = bool(os.environ.get("REGARD_CHECK_SHAPES"))

if CHECK_SHAPES:
    import shape_checks

    shape_checks.install()  # before anything imports regard

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # as many processes as cores, each with as many threads, would wait for one another

# The same examples every time: a test that fails only now and then is nobody's friend.
hypothesis.settings.register_profile("regard", max_examples=25, deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("regard")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))
        if item.get_closest_marker("compiled") and CHECK_SHAPES:
            item.add_marker(pytest.mark.skip(reason="runs without REGARD_CHECK_SHAPES"))


@pytest.fixture(autouse=True)
def _one_seed():
    torch.manual_seed(123)


@pytest.fixture
def three_threads():
    """torch uses three threads, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def without_shape_checks():
    """With the checks on, the signature refuses a wrong shape before our own message has its turn."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
