"""Layers by strangers, tests/school/check/strangers: what `regard check` says of each, beside what it should say.

python -m benchmarks.check.strangers right wrong use [--only TEXT] [--json FILE] [--shard 1/2]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.school.check.own_file import check_file
from regard.school.sandbox.protection import Protection
from regard.school.sandbox.worker import Worker

FOLDER = Path(__file__).parents[2] / "tests" / "school" / "check" / "strangers"
CRASHES = (
    "missing-import",
    "missing-super-init",
    "typo-attribute",
    "typo-name",
    "cuda-hard-coded",
    "keys-not-transposed",
)
STATUSES = {"right": "✓", "wrong": "✗", "unchecked": "?"}


def layers(part: str, folder: Path = FOLDER) -> Iterator[tuple[dict[str, Any], str]]:
    """What is expected of each layer of a part, and its text: its own, or that of a right layer (`of`) with `edits`."""
    sources: dict[str, str] = {}
    for text in {folder / "right.txt", folder / f"{part}.txt"}:
        for one in ("\n" + (text.read_text(encoding="utf-8") if text.exists() else "")).split("\n==== ")[1:]:
            name, _, source = one.partition("\n")
            sources[name] = source + "\n"
    for line in (folder / f"{part}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        source = sources[row.get("of", row["file"])]
        for old, new in row.get("edits", ()):
            source = source.replace(old, new)
        yield row, source


def verdict_on(row: dict[str, Any], source: str, folder: Path, worker: Worker) -> dict[str, Any]:
    """The status of the whole file, the names of its mistakes with their lines, and the time."""
    path = folder / row["file"]
    path.write_text(source, encoding="utf-8")
    begin = time.perf_counter()
    try:
        verdicts = check_file(path, "", worker)
    except ValueError as error:
        return {"status": "unchecked", "names": [], "lines": [], "says": [f"ValueError: {error}"], "seconds": 0.0}
    statuses = {one.status for one in verdicts}
    findings = [one for verdict in verdicts for one in verdict.mistakes]
    return {
        "status": "wrong" if "wrong" in statuses else "unchecked" if "unchecked" in statuses else "right",
        "names": [one.name for one in findings],
        "lines": [one.line for one in findings],
        "says": [f"{one.name}: {one.problem}" for one in verdicts if one.problem] + [one.says for one in findings],
        "seconds": round(time.perf_counter() - begin, 2),
    }


def judged(row: dict[str, Any], found: dict[str, Any], names: dict[str, list[str]]) -> dict[str, bool]:
    """Is a wrong layer named, with both names where it has two mistakes; misnamed; and is a line of it right?

    names: the prefixes of our names that are true for a cause. A crash hides what comes after it.
    """
    causes = row.get("causes") or [row["cause"]]
    true = [tuple(names.get(cause, ())) for cause in causes]
    given = [name for name in found["names"] if name]
    is_true = [any(name.startswith(prefixes) for name in given) for prefixes in true]
    is_crash = bool(is_true) and is_true[0] and causes[0] in CRASHES
    return {
        "named": all(is_true) or is_crash,
        "misnamed": any(not any(name.startswith(prefixes) for prefixes in true) for name in given),
        "line": any(line in row.get("lines_ok", [row.get("line")]) for line in found["lines"]),
    }


def by_cause(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """For every cause: layers, those called wrong, and of these named, misnamed and with a right line."""
    causes = sorted({row["cause"].partition(" + ")[0] for row in rows})
    columns = ("✗", "named", "misnamed", "line")
    yield f"{'cause':30} layers " + " ".join(f"{column:>8}" for column in columns)
    for cause in (*causes, "all"):
        of = [row for row in rows if cause in (row["cause"].partition(" + ")[0], "all")]
        wrong = [row for row in of if row["status"] == "wrong"]
        counts = [len(wrong), *(sum(row[column] for row in wrong) for column in columns[1:])]
        yield f"{cause:30} {len(of):6} " + " ".join(f"{count:8}" for count in counts)


def main(argv: Sequence[str]) -> int:
    """Check them, print a line for each and a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check.strangers", description=__doc__)
    parser.add_argument("parts", nargs="*", default=["right", "wrong", "use"])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--only", default="", help="a text in the file's name or cause")
    parser.add_argument("--json", type=Path, help="write every verdict, one a line")
    parser.add_argument("--shard", default="1/1", help="K/N: every N-th, from the K-th")
    options = parser.parse_args(argv)
    first, step = map(int, options.shard.split("/"))
    counts: Counter[tuple[str, str]] = Counter()
    names = json.loads((FOLDER / "names.json").read_text(encoding="utf-8"))
    written = []
    with tempfile.TemporaryDirectory() as folder, Worker(protection=_protection()) as worker:
        for part in options.parts:
            for number, (row, source) in enumerate(layers(part, options.folder)):
                if options.only not in row["file"] + row["cause"] or number % step != first - 1:
                    continue
                found = verdict_on(row, source, Path(folder), worker)
                counts[part, f"{row['expected']} {STATUSES[found['status']]}"] += 1
                verdict = judged(row, found, names) if row["expected"] == "wrong" else {}
                written.append({**row, **found, **verdict, "part": part, "expected": row["expected"]})
                told = " + ".join(name or "no name" for name in found["names"]) or "; ".join(found["says"])[:150]
                is_good = STATUSES[found["status"]] == {"right": "✓", "wrong": "✗", "other": "?"}[row["expected"]]
                mark = "!" if found["status"] == "wrong" and verdict.get("misnamed") else " " if is_good else "*"
                print(f"{mark} {part:5} {row['expected']:5} {STATUSES[found['status']]} {found['seconds']:5.1f} s"
                      f"  {row['file']} [{row['cause']}]  {told}", flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(
            "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in written), encoding="utf-8"
        )
    for (part, what), count in sorted(counts.items()):
        print(f"{part:6} {what:10} {count}")
    if wrong := [row for row in written if row["expected"] == "wrong"]:
        print("", *by_cause(wrong), sep="\n")
    return 0


def _protection() -> Protection:
    return Protection.for_own_file(imported=["regard.school.check.own_file"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
