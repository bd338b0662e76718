"""Files in TOML, which people write by hand: courses and keys."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

tomllib: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a file; a ValueError names it if it is not TOML."""
    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
