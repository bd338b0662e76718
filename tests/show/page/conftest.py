"""What the tests of the page share."""

import pytest
from chromium import chromium


@pytest.fixture(scope="module")
def browser():
    """Chromium, for the tests of one file."""
    with chromium() as one:
        yield one
