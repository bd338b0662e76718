"""The benchmark of cuts: what is compared, what is refused, and the table."""

import json

import pytest
import torch

from regard.bench import cut as bench
from regard.bench.settings import Setting, WrongError
from regard.bench.twins import QUICK, twin
from regard.gpt import GPT

pytest.importorskip("transformers")


def contenders():
    torch.manual_seed(3)
    model = twin(GPT(QUICK)).eval()
    return bench.contenders(model, None, torch.randint(0, QUICK.vocab_size, (1, 13)), QUICK)


def test_every_contender_computes_the_same_text():
    calls = contenders()
    assert list(calls) == [bench.BASE, bench.OURS, bench.EDGE]
    uncut, head, edge = (call() for call in calls.values())
    assert uncut.shape == head.shape == edge.shape == (1, 13, QUICK.vocab_size)
    assert torch.equal(edge[:, :-1], uncut[:, :-1])  # the edge is of the last token
    assert not torch.equal(edge[:, -1], uncut[:, -1])
    assert bench.check(calls, torch.float32) is None


def test_nothing_is_timed_where_logits_differ_or_nothing_was_cut():
    calls = contenders()
    with pytest.raises(WrongError, match=r"regard.cut and TransformerLens differ by"):
        bench.check({**calls, bench.LENS: lambda: 2 * calls[bench.OURS]()}, torch.float32)
    with pytest.raises(WrongError, match="the logits are the same as without the cut"):
        bench.check({**calls, bench.OURS: calls[bench.BASE]}, torch.float32)
    assert bench.check({**calls, bench.LENS: calls[bench.OURS]}, torch.float32) == 0


def test_a_run_prints_a_table_and_writes_its_results(tmp_path):
    lines = []
    bench.run(Setting("cpu", torch.float32, rounds=1, seconds=0.01), QUICK, [11], tmp_path, show=lines.append)
    text = "\n".join(lines)
    assert "one forward over 11 tokens, float32 · cpu" in text
    assert "→ regard.cut, a head" in text
    assert max(map(len, text.splitlines())) <= 80
    (case,) = json.loads((tmp_path / "cut.json").read_text())["cases"]
    assert case["times"][bench.BASE]["to_uncut"] == 1


def test_a_text_that_does_not_fit_is_refused(capsys):
    with pytest.raises(SystemExit):
        bench.main(["--quick", "--tokens", "65"])
    assert "--tokens 65 must be from 2 to 64, the context of the model" in capsys.readouterr().err
