"""The table of the zoo in docs/watch.md: `python tests/heads/zoo/table.py` writes it, the tests read it.

A class has the weakest of its verdicts: by SDPA and by eager code, padded and not.
"""

from __future__ import annotations

import re
import sys
import warnings
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[2]
DOCS = TESTS.parent / "docs" / "watch.md"
BEGIN, END = "<!-- the zoo -->", "<!-- end of the zoo -->"
_ROW = re.compile(r"^\| (exact|marked|refused) \| (.*?) \|", re.MULTILINE)


@cache
def verdicts_in_docs() -> dict[str, str]:
    """The verdict of each class, by name."""
    table = DOCS.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    return {
        name.strip().strip("`"): verdict for verdict, names in _ROW.findall(table) for name in names.split(",") if name
    }


def table() -> str:
    """Watch every class, and write what became of it."""
    from heads.zoo.classes import ANIMALS
    from heads.zoo.hybrids import HYBRIDS
    from heads.zoo.measure import examine
    from heads.zoo.towers import TOWERS

    rows: dict[tuple[str, str], list[str]] = {}
    for animal in (*ANIMALS, *TOWERS, *HYBRIDS):
        cases = [
            (i, p) for i in ("eager", "sdpa") if animal.has(i) for p in ((False, True) if animal.can_pad else (False,))
        ]
        results = [examine(animal, *case) for case in cases]
        for verdict in ("wrong", "refused", "marked", "exact"):
            if those := [result for result in results if result.verdict == verdict]:
                rows.setdefault((verdict, "; ".join(those[0].reasons)), []).append(animal.name)
                print(animal.name, verdict, *those[0].wrong, flush=True)
                break
    lines = ["| | classes | what is said |", "| --- | --- | --- |"]
    for verdict in ("exact", "marked", "refused", "wrong"):
        for (kind, reason), names in rows.items():
            if kind == verdict:
                lines.append(f"| {verdict} | {', '.join(f'`{name}`' for name in names)} | {reason} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.path.insert(0, str(TESTS))
    warnings.simplefilter("ignore")
    import transformers

    transformers.logging.set_verbosity_error()
    made = table()
    before, _, rest = DOCS.read_text(encoding="utf-8").partition(BEGIN)
    DOCS.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
