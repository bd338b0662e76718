"""Reports as files: what is read is what was written, and nothing is believed unseen."""

import copy
import json
import os
import pickle

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from heads import dense
from heads.dense import generation, random_call
from heads.made_calls import made_call
from regard.attention.masks import Dense, Mask, causal, documents, padding, window
from regard.attention.masks import dense as dense_mask
from regard.heads.measure.registry import NAMES as EVERY
from regard.heads.report.files import PackedMask, packed_bits
from regard.heads.report.report import Seen, load_seen


@pytest.fixture(autouse=True)
def _by_definition(monkeypatch):
    dense.stand_in(monkeypatch)


def same(one, other):
    assert one.dtype == other.dtype
    assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def same_reports(one, other):
    assert repr(one) == repr(other)
    assert (one.collect, one.keep, one.layers) == (other.collect, other.keep, other.layers)
    assert str(one.summary()) == str(other.summary())  # as text, in which NaN is like itself
    for mine, its in zip(one.forwards, other.forwards, strict=True):
        for layer in range(len(mine)):
            ours, theirs = mine[layer].record, its[layer].record
            names = [n for n in (*EVERY, "top_keys", "top_weights") if all(n in step.measured for step in ours.steps)]
            for name in names:
                same(ours.read(name), theirs.read(name))


def same_weights(one, other):
    for mine, its in zip(one.forwards, other.forwards, strict=True):
        for layer in range(len(mine)):
            same(mine[layer].weights(), its[layer].weights())
            same(mine[layer].map(3), its[layer].map(3))
            same(mine[layer].histogram, its[layer].histogram)
            same(mine[layer].top(3).keys, its[layer].top(3).keys)
            same(mine[layer].top(3).weights, its[layer].top(3).weights)


class Chequered(Mask):
    """A rule that no file knows."""

    def tile(self, rows, cols, shift):
        return (rows[:, None] + cols) % 2 == 0


ANY = torch.arange(150).reshape(2, 3, 5, 5) * 7 % 5 > 1
MASKS = [
    causal(),
    causal() & window(3),
    padding([3, 5]),
    padding(torch.tensor([[False, True, True, True, True], [True] * 5])) & causal(),
    documents([0, 0, 1, 1, 1]) | window(1),
    ~(causal() & window(2)),
    dense_mask(ANY),
    dense_mask(ANY[0, 0]) & causal(),
    Chequered(),
]


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.name)
def test_a_report_comes_back_to_the_bit_whatever_its_mask(mask, tmp_path):
    seen = Seen(collect=(*dense.ROWS, "received_mean", "histogram", "top", "map"))
    seen.add(0, 0, random_call(mask=mask, tokens=torch.randint(0, 3, (2, 5)), module="h.0.attn", Hkv=1))
    seen.add(0, 1, random_call(mask=mask, real=torch.rand(2, 5) < 0.8, module="h.1.attn"))
    seen.save(tmp_path / "seen.safetensors")
    again = load_seen(tmp_path / "seen.safetensors")
    same_reports(seen, again)
    same_weights(seen, again)


def test_a_generation_and_other_forwards_come_back(tmp_path):
    seen = Seen(collect=(*dense.ROWS, "received_mean"))
    _, steps = generation([5, 1, 1], tokens=torch.randint(0, 3, (2, 7)))
    for forward, call in enumerate(
        [*steps, random_call(T=11), made_call("w", weights=torch.rand(2, 3, 5, 7).softmax(-1))]
    ):
        seen.add(forward, 0, call)
    seen.save(tmp_path / "seen")
    again = load_seen(tmp_path / "seen")
    assert len(again.forwards) == 3
    same_reports(seen, again)
    same_weights(seen, again)
    same(seen.forwards[0].rollout([6, 2]), again.forwards[0].rollout([6, 2]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_precision_is_kept(dtype, tmp_path):
    seen = Seen()
    q, k = (torch.randn(1, 2, 3, 5, dtype=dtype) for _ in range(2))
    seen.add(0, 0, made_call("a", q=q, k=k, alibi=torch.tensor([0.5, 0.25]), bias=torch.randn(2, 3, 3)[None]))
    seen.save(tmp_path / "seen")
    again = load_seen(tmp_path / "seen")
    same(again[0].record.call(0).attention.q, q)
    same_weights(seen, again)


def test_an_empty_text_and_an_empty_batch_come_back(tmp_path):
    seen = Seen()
    seen.add(0, 0, random_call(B=0, T=5))
    seen.add(0, 1, random_call(T=0, S=3))
    seen.save(tmp_path / "seen")
    same_reports(seen, load_seen(tmp_path / "seen"))


def test_without_queries_and_keys_the_file_is_small_and_the_statistics_are_whole(tmp_path):
    seen = Seen(collect=(*dense.ROWS, "received_mean"))
    _, steps = generation([31, 1, 1], D=64)
    for forward, call in enumerate(steps):
        seen.add(forward, 0, call)
    seen.save(tmp_path / "whole")
    seen.save(tmp_path / "small", keep=False)
    again = load_seen(tmp_path / "small")
    same_reports(seen, again)
    assert 2 * os.path.getsize(tmp_path / "small") < os.path.getsize(tmp_path / "whole")
    with pytest.raises(
        ValueError, match=r"weights\(\) needs the queries and keys of attention, and they were not kept"
    ):
        again[0].weights()


def test_what_was_not_kept_cannot_be_saved(tmp_path):
    seen = Seen(keep=False)
    seen.add(0, 0, random_call())
    with pytest.raises(ValueError, match=r"queries and keys were not all kept, so they cannot be saved"):
        seen.save(tmp_path / "seen", keep=True)
    seen.save(tmp_path / "seen")
    same_reports(seen, load_seen(tmp_path / "seen"))


def test_a_bias_used_in_every_layer_is_written_once(tmp_path):
    bias = torch.randn(1, 3, 31, 31)
    seen = Seen(collect=("entropy",))
    for layer in range(5):
        seen.add(0, layer, random_call(T=31, D=2, bias=bias.clone()))
    seen.save(tmp_path / "seen")
    assert [tuple(t.shape) for t in load_file(tmp_path / "seen").values()].count((1, 3, 31, 31)) == 1


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    seen = Seen()
    seen.add(0, 0, random_call())
    seen.save(tmp_path / "seen")
    before = (tmp_path / "seen").read_bytes()

    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        seen.save(tmp_path / "seen")
    assert (tmp_path / "seen").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["seen"]


def saved(path):
    seen = Seen()
    seen.add(0, 0, random_call(mask=causal() & padding([3, 5])))
    seen.save(path)


def edited(path, change):
    """The same file after change(report, tensors)."""
    with safe_open(path, "pt") as file:
        header = file.metadata()
    tensors, report = load_file(path), json.loads(header["report"])
    change(report, tensors)
    save_file(tensors, path, metadata=header | {"report": json.dumps(report)})


TEXT = {"pieces": ["a"], "continues": [False], "padding": [False], "parts": {}}


def deep(levels):
    """A mask of masks."""
    rule = {"kind": "causal"}
    for _ in range(levels):
        rule = {"kind": "not", "of": [rule]}
    return rule


def layer_of(report):
    return report["forwards"][0]["layers"][0]


def step_of(report):
    return layer_of(report)["steps"][0]


def test_a_file_from_before_tokens_were_saved_has_none(tmp_path):
    saved(tmp_path / "seen")
    edited(
        tmp_path / "seen", lambda r, t: (r.pop("texts"), layer_of(r).pop("query_texts"), layer_of(r).pop("key_texts"))
    )
    again = load_seen(tmp_path / "seen")
    assert again.tokens is None
    with pytest.raises(ValueError, match=r"'cat' cannot be looked up: the report was saved without tokens"):
        again[0, 0].weights(rows="cat")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r, t: r.pop("collect"), r"the header does not describe a report \(KeyError: 'collect'\)"),
        (lambda r, t: step_of(r).update(T=6), r"attention: lse is \(2, 3, 5\) and should be \(2, 3, 6\)"),
        (lambda r, t: step_of(r).update(S=-1), r"S is -1, no size"),
        (lambda r, t: step_of(r).update(extra=9), r"attention: 9 of \d keys are said to be extra"),
        (lambda r, t: step_of(r).update(scale=float("nan")), r"attention: scale is nan"),
        (lambda r, t: t.pop(step_of(r)["q"]), r"attention: q is missing"),
        (lambda r, t: step_of(r).pop("k"), r"attention: neither weights nor queries and keys are there"),
        (lambda r, t: step_of(r).update(k=step_of(r)["found"]["lse"]), r"attention: k is \(2, 3, 5\) and should be"),
        (lambda r, t: step_of(r)["found"].update(magic="t0"), r"magic is no statistic of version 1"),
        (lambda r, t: step_of(r)["mask"].update(kind="rainbow"), r"no mask is called 'rainbow'"),
        (lambda r, t: step_of(r).update(mask={"kind": "window", "size": 0}), r"window \(0\) must be a whole number"),
        (lambda r, t: step_of(r).update(shares_keys=True), r"the keys of all steps together are missing"),
        (
            lambda r, t: (step_of(r).update(kept=False), step_of(r)["found"].pop("visible")),
            r"attention: visible is missing",
        ),
        (lambda r, t: t.update({step_of(r)["k"]: torch.zeros(2, 2, 5, 7)}), r"keys \(2, 2, 5, 7\) do not fit queries"),
        (lambda r, t: r["forwards"][0]["layers"][0].update(steps=[]), r"a layer has no name or no steps"),
        (lambda r, t: r.update(collect=["magic"]), r"collect names 'magic'"),
        (lambda r, t: layer_of(r).update(key_texts=[0, 0]), r"the header does not describe a report \(IndexError"),
        (
            lambda r, t: (r.update(texts=[TEXT]), layer_of(r).update(key_texts=[0, 0])),
            r"attention: key_texts should be 2 texts of 5 tokens",
        ),
        (lambda r, t: r.update(texts=[TEXT | {"pieces": [3]}]), r"texts are not lists of tokens"),
        (lambda r, t: r.update(texts=[TEXT | {"parts": {"0": "\x1b[2J"}}]), r"texts are not lists of tokens"),
        (lambda r, t: r.update(texts=[TEXT | {"parts": {"1": "猫:1"}}]), r"texts are not lists of tokens"),
        (lambda r, t: layer_of(r).update(name="\x1b]0;title\x07"), r"a layer has no name or no steps"),
        (lambda r, t: layer_of(r).update(H=10**9), r"H is 1000000000, no size"),
        (lambda r, t: step_of(r).update(T=10**7), r"2 texts, 3 heads and 10,000,000 tokens are more than a file of"),
        (lambda r, t: step_of(r)["mask"].update(of=[{"kind": "window", "size": 2**31}] * 2), r"a window is 2147483648"),
        (
            lambda r, t: t[step_of(r)["found"]["largest_key"]].fill_(5),
            r"largest_key has 5, which is not between -1 and 4",
        ),
        (lambda r, t: t[step_of(r)["found"]["largest_key"]].fill_(-2), r"largest_key has -2, which is not"),
        (lambda r, t: t[step_of(r)["found"]["sink"]].fill_(7), r"sink has 7, which is not between -0.1 and 1.2"),
        (lambda r, t: t[step_of(r)["found"]["entropy"]].fill_(1e30), r"entropy has .*, which is not between"),
        (lambda r, t: step_of(r)["found"].pop("even_distance"), r"visible and even_distance belong together"),
        (
            lambda r, t: t.update({step_of(r)["q"]: torch.zeros(2, 3, 5, 7, dtype=torch.long)}),
            r"q must be numbers, but is",
        ),
        (lambda r, t: step_of(r).update(mask={"kind": "dense", "shape": [9], "bits": "t0"}), r"a mask has 1 axes"),
        (
            lambda r, t: step_of(r).update(mask=deep(400)),
            r"attention: its mask has more than 64 parts",
        ),
    ],
)
def test_a_header_that_does_not_fit_its_tensors_is_not_believed(change, message, tmp_path):
    saved(tmp_path / "seen")
    edited(tmp_path / "seen", change)
    with pytest.raises(ValueError, match=message + r".*Nothing was loaded\."):
        load_seen(tmp_path / "seen")


def test_a_file_cut_short_is_damaged(tmp_path):
    saved(tmp_path / "seen")
    whole = (tmp_path / "seen").read_bytes()
    for size in (0, 7, 100, len(whole) - 1):
        (tmp_path / "seen").write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"is damaged or no safetensors file .*Nothing was loaded\."):
            load_seen(tmp_path / "seen")


def test_another_safetensors_file_is_no_report(tmp_path):
    save_file({"weight": torch.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"this is a safetensors file but no report of regard; seen\.save\(path\)"):
        load_seen(tmp_path / "model.safetensors")


def test_a_report_of_a_later_version_asks_for_an_update(tmp_path):
    save_file({}, tmp_path / "seen", metadata={"format": "regard.seen", "version": "2"})
    with pytest.raises(ValueError, match=r"the report has version 2 and this regard reads 1; update regard"):
        load_seen(tmp_path / "seen")


def test_no_file_at_all_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere is not a file; seen\.save\('.*nowhere'\) writes one"):
        load_seen(tmp_path / "nowhere")


def test_a_mask_that_a_hundred_layers_name_is_one_tensor_and_none_before_it_is_asked_for(tmp_path):
    mask = torch.rand(1, 1, 257, 257) < 0.5
    seen = Seen(collect=("entropy",))
    seen.add(0, 0, random_call(B=1, H=1, T=257, D=1, mask=dense_mask(mask)))
    seen.save(tmp_path / "seen")

    def named_often(report, _):
        report["forwards"][0]["layers"] *= 100

    edited(tmp_path / "seen", named_often)
    again = load_seen(tmp_path / "seen")
    masks = [again[layer].record.call(0).attention.mask for layer in range(100)]
    assert all(one is masks[0] for one in masks)
    assert "seen" not in vars(masks[0])  # not unpacked yet
    torch.testing.assert_close(masks[0].seen, mask)


def test_queries_of_width_zero_cannot_claim_millions_of_tokens(tmp_path):
    seen = Seen(collect=("entropy",))
    seen.add(0, 0, random_call(B=1, H=1, T=5, D=3))
    seen.save(tmp_path / "seen")

    def widened(report, tensors):
        step = step_of(report)
        tensors[step["q"]], tensors[step["k"]] = torch.zeros(1, 1, 10**6, 0), torch.zeros(1, 1, 10**6, 0)
        step.update(T=10**6, S=10**6, found={})

    edited(tmp_path / "seen", widened)
    with pytest.raises(ValueError, match=r"attention: queries have width 0\. Nothing was loaded"):
        load_seen(tmp_path / "seen")


def test_masks_that_would_have_to_be_counted_are_bounded_by_the_size_of_the_file(tmp_path):
    seen = Seen(collect=("entropy",))
    seen.add(0, 0, random_call(B=1, H=1, T=1009, D=1, mask=dense_mask(torch.rand(1009, 1009) < 0.5)))
    seen.save(tmp_path / "seen")

    def uncounted(report, _):
        for name in ("visible", "even_distance"):
            step_of(report)["found"].pop(name)
        report["forwards"][0]["layers"] *= 100

    assert load_seen(tmp_path / "seen")[0, 0].weights(rows=3).shape == (1, 1, 1009)
    edited(tmp_path / "seen", uncounted)
    with pytest.raises(ValueError, match=r"attention: [\d,]+ cells of masks are too many for a file of [\d,]+ bytes"):
        load_seen(tmp_path / "seen")


def test_five_hundred_bytes_cannot_claim_a_billion_heads(tmp_path):
    layer = {"name": "a", "B": 1, "H": 10**9, "shared": None, "steps": []}
    layer["steps"] = [{"T": 1, "S": 1, "kept": False, "across": False, "found": {"visible": "v", "even_distance": "v"}}]
    report = {"collect": [], "keep": False, "forwards": [{"number": 0, "layers": [layer]}], "texts": []}
    metadata = {"format": "regard.seen", "version": "1", "report": json.dumps(report)}
    save_file({"v": torch.ones(1, 1, 1)}, tmp_path / "seen", metadata=metadata)
    with pytest.raises(ValueError, match=r"seen: H is 1000000000, no size\. Nothing was loaded\."):
        load_seen(tmp_path / "seen")


def test_a_report_with_many_empty_lists_is_refused_before_it_is_parsed(tmp_path):
    metadata = {"format": "regard.seen", "version": "1", "report": "[" + "[]," * 600_000 + "0]"}
    save_file({}, tmp_path / "seen", metadata=metadata)
    with pytest.raises(ValueError, match=r"it has too many values .*Nothing was loaded\."):
        load_seen(tmp_path / "seen")


@pytest.mark.parametrize("shape", [(5, 7), (2, 5, 7), (2, 3, 5, 7), (1, 1, 1, 1), (0, 7), (3, 8)])
def test_bits_come_back(shape):
    seen = torch.rand(shape) < 0.5
    bits = packed_bits(seen)
    assert bits.numel() == -(-seen.numel() // 8)
    assert_close(PackedMask(bits, shape).seen, seen)


def test_it_is_a_dense_mask_that_is_unpacked_once_and_on_demand():
    seen = torch.rand(2, 3, 5, 7) < 0.5
    mask = PackedMask(packed_bits(seen), (2, 3, 5, 7))
    assert isinstance(mask, Dense)
    assert mask.name == dense_mask(seen).name
    mask.check(2, 3, 5, 7)
    assert "seen" not in vars(mask)
    assert mask.seen is mask.seen
    assert_close((mask & causal()).dense(5, 7), (dense_mask(seen) & causal()).dense(5, 7))


def test_a_shape_that_does_not_fit_is_refused_without_unpacking():
    mask = PackedMask(torch.zeros(0, dtype=torch.uint8), (5, 10**12))
    with pytest.raises(ValueError, match=r"mask has shape \(5, 1000000000000\) but weights here are \(T=5, S=7\)"):
        mask.check(2, 3, 5, 7)


def test_copies_have_the_same_bits():
    seen = torch.rand(5, 7) < 0.5
    mask = PackedMask(packed_bits(seen), (5, 7))
    for again in (copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))):
        assert_close(again.seen, seen)
