"""How shapes are checked at run time: by beartype, for which, as for mypy, an int is a float (PEP 484).

Only what has a shape in its signature is checked. All other types are mypy's, which proves them without running; to
check them at every call as well would double the time of the tests.
"""

import re
from collections.abc import Callable
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
SHAPE = re.compile(r"\b(Bool|Float|Int|Integer)\[|\bPositions\b")  # Positions: an alias in regard.gpt.block


def install() -> None:
    """Before anything imports regard."""
    jaxtyped = jaxtyping.jaxtyped

    def where_shapes_are(typechecker: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def decorate(target: Any) -> Any:
            has_shapes = any(SHAPE.search(str(one)) for one in getattr(target, "__annotations__", {}).values())
            return jaxtyped(target, typechecker=typechecker) if has_shapes else target

        return decorate

    jaxtyping.jaxtyped = where_shapes_are  # what the import hook writes before each function and class
    jaxtyping.install_import_hook("regard", "shape_checks.checked")
