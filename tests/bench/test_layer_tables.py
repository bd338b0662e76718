"""Tables and summary of the layer benchmark."""

import pytest

from regard.bench.layer_tables import panels, summary, summary_lines, tables


def test_tables_of_a_gpu_fit_80_columns_and_have_the_fastest_first():
    case = _made_up_case()
    lines = [*tables(case), *summary_lines(summary([case]))]
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("→ regard") for line in lines) == 2  # a table for each clock
    names = [line[2:27].strip() for line in tables(case)]
    assert names.index("bare split") < names.index("regard") < names.index("textbook layer compiled")
    assert any("fwd MiB" in line for line in lines)
    assert [p.bars[0][0] for p in panels(case)] == ["bare split", "bare split"]


def test_a_noisy_run_says_so():
    case = _made_up_case()
    assert not any("noisy" in line for line in tables(case))
    case["contenders"]["bare split"]["times"]["device"]["step"] = dict(
        case["contenders"]["bare split"]["times"]["device"]["step"], median_ms=7.0
    )
    assert [line for line in tables(case) if "noisy" in line] == [
        "  noisy: the median of bare split, step, is 3.5 × its best"
    ]


def test_the_summary_holds_compiled_contenders_against_compiled_ones():
    entries = summary([_made_up_case()])
    device = [e for e in entries if e["clock"] == "device" and e["mode"] == "step"]
    assert [(e["compiled"], e["fastest"]) for e in device] == [(False, "bare split"), (True, "regard compiled")]
    assert device[0]["ours_to_fastest"] == pytest.approx(1.25)
    assert device[0]["textbook_to_ours"] is None
    assert device[1]["textbook_to_ours"] == pytest.approx(54600 / 2.0)


def _made_up_case():
    def times(best):
        found = {
            "median_ms": best,
            "rounds": 9,
            "calls": 3,
            "to_fastest": 1.0,
            "to_ours": best / 2.5,
            "best_ms": best,
            "ms": best,
        }
        return {clock: {"forward": found, "step": found} for clock in ("device", "eager")}

    best = {"regard": 2.5, "bare split": 2.0, "textbook layer compiled": 54600.0, "regard compiled": 2.0}
    return {
        "label": "4096 wide, 32 heads, B=2 T=16384",
        "dtype": "bfloat16",
        "device": "cuda",
        "notes": ["x-transformers: not installed (No module named 'x_transformers')"],
        "contenders": {
            name: {"times": times(ms), "peak_mib": {"forward": 19_700.0, "step": 54_600.0}} for name, ms in best.items()
        },
    }
