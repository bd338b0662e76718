"""A class of hostile and broken submissions: the attacks of tests/sandbox/attacks.py, and others on the grader itself.

Every layer here is wrong, whatever else it does: none may be graded right. A few honest submissions among them must get
the verdict that they deserve.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from school.grading.hostile_files import NAMES, ODD_FILES
from school.grading.hostile_functions import FUNCTIONS, RIGHT_SCALE
from school.grading.hostile_layers import LAYERS, layer
from school.grading.submissions import NO_MASK, NO_SCALE, RIGHT, WRONG_AXIS
from school.sandbox.attacks import aim, variants, with_f

HONEST = {"right": (RIGHT, "right"), "no scale": (NO_SCALE, "wrong"), "no mask": (NO_MASK, "wrong"), "wrong "
"axis": (WRONG_AXIS, "wrong")}  # fmt: skip


def of_attack(source: str) -> str:
    """A source with an f, as tests/sandbox runs it, and a layer whose forward calls f."""
    return f"{with_f(source)}\n{layer(forward='f(x)')}"


def make_class(
    folder: Path,
    victim: Path,
    count: int,
    seed: int,
    supervisor: int,
    package: Path,
    only: str = "",
    by_exercise: bool = False,
) -> dict[str, str]:
    """Write so many submissions: odd files, layers, attacks in the ways to hide them, and honest ones.

    With `only`, those that have this text in their names. `by_exercise`: functions too, for a teacher's own exercise.

    Returns what each is, by the name of its file, in the order of their names.
    """
    chance = random.Random(seed)
    honest = [(f"honest: {name}", source) for name, (source, _) in HONEST.items()]
    aimed = variants(lambda source: aim(source, victim, supervisor, package))
    attacks = [(name, of_attack(source)) for name, source in aimed]
    layers = [(name, aim(source, victim, supervisor, package)) for name, source in LAYERS.items()]
    odd = list(ODD_FILES.items())
    if by_exercise:
        honest, attacks, layers = (
            [(name, source + RIGHT_SCALE) for name, source in some] for some in (honest, attacks, layers)
        )
        layers += FUNCTIONS.items()
    for some in (attacks, layers, odd):
        some[:] = [one for one in some if only in one[0]]
        chance.shuffle(some)
    rest = count - len(honest)
    odd, layers = odd[: max(1, rest // 6)], layers[: rest * 3 // 5]
    made: dict[str, str] = {}
    for name, make in odd:
        make(folder, victim)
        made[name] = f"file: {name}"
    for number, (what, source) in enumerate([*honest, *layers, *attacks[: rest - len(odd) - len(layers)]]):
        name = f"{NAMES[number] if number < len(NAMES) else what.split(',')[0].replace('/', '')}-{number}"
        while len(os.fsencode(name)) > 250:
            name = name[1:]
        path = folder / f"{name}.py"
        path.write_bytes(source.encode("utf-8", "surrogatepass"))
        made[path.name] = what
    return dict(sorted(made.items(), key=lambda one: folder / one[0]))
