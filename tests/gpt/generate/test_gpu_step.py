"""A decoding step of the Triton kernels against the model itself in float64, run by Triton's interpreter without a GPU.

    TRITON_INTERPRET=1 pytest, the third command of `make test`

Triton reads that variable once, when it is first imported, so these tests need a process of their own.
"""

import copy
import os

import pytest
import torch
from torch import nn

import regard
from regard.attention.positions import Rotary, Stretch
from regard.gpt import GPT, GPTConfig

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1", allow_module_level=True)
gpu_step = pytest.importorskip("regard.gpt.generate.gpu_step")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's numpy meets infinities

V = 53
GPT2 = GPTConfig(vocab_size=V, context_length=97, num_layers=1, d_model=24, num_heads=3, d_ff=37)
LLAMA = GPT2.with_(
    num_heads=2, num_kv_heads=1, d_model=48, d_ff=29, rotary=Rotary(), norm="rms", feed_forward="swiglu",
        qkv_bias=False,
    bias=False, tied=False,
)  # fmt: skip
CONFIGS = {
    "gpt2": GPT2,  # heads of 8
    "two layers without biases": GPT2.with_(bias=False, qkv_bias=False, num_layers=2),
    "exact gelu": GPT2.with_(feed_forward="gelu_exact"),
    "llama": LLAMA,  # heads of 24
    "qwen": LLAMA.with_(qk_norm=True, qkv_bias=True, num_heads=4, num_kv_heads=2, d_model=32),
    "interleaved window": GPT2.with_(rotary=Rotary(interleaved=True), window=7, num_heads=1, d_model=64),
    "llama 3": LLAMA.with_(rotary=Rotary(500.0, stretch=Stretch(8.0, original=16)), num_heads=4, d_model=32),
    "linear": GPT2.with_(rotary=Rotary(interleaved=True, stretch=Stretch(3.0))),
    "biases in the gate": GPT2.with_(feed_forward="swiglu"),
}
STARTS = {1: [0], 2: [5, 0], 3: [0, 12, 7]}


@pytest.fixture(autouse=True)
def _few_programs(monkeypatch):
    """Few programs with several blocks each, as in large models; large blocks, because the interpreter is slow."""
    sizes_of = gpu_step.GPUStep._block_sizes
    monkeypatch.setattr(gpu_step, "MAX_PROGRAMS", 3)
    monkeypatch.setattr(
        gpu_step.GPUStep, "_block_sizes", lambda self, *args, **options: {**sizes_of(self, *args, **options), "BN": 32}
    )


def model_of(config, dtype=torch.float32):
    model = GPT(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.to(dtype)


class Reading:
    """Texts read by a model up to T tokens, to be continued by the kernels and by the same model in float64."""

    def __init__(self, model, T, starts, *, capacity=128, greedy=False, key_block=None):
        self.reference, self.starts = copy.deepcopy(model).double(), starts
        self.ids = torch.randint(0, V, (len(starts), T))
        assert gpu_step.supports(model, len(starts))
        self.step = gpu_step.GPUStep(model, len(starts), capacity, greedy, key_block)
        begins = torch.tensor(starts, dtype=torch.int32)
        self.step.start.copy_(begins)
        self.step.slot.fill_(T - 1)
        positions = torch.arange(T) - begins[:, None]
        options = {"mask": regard.padding(positions >= 0), "positions": positions.clamp(min=0)}
        model.hidden(self.ids, cache=self.step.cache, **options)

    def advance(self, ids=None):
        """Read one more token of each row: the given one, or the best one."""
        if ids is not None:
            self.step.ids.copy_(ids)
        self.step.embed_next(chosen=ids is not None)
        self.ids = torch.cat([self.ids, self.step.ids[:, None]], dim=1)
        self.step.score()

    def scores(self):
        """The scores of the model in float64, for each text alone."""
        return torch.stack([self.reference(row[None, s:])[0, -1] for row, s in zip(self.ids, self.starts, strict=True)])


def check(reading, steps=2, **close):
    for _ in range(steps):
        reading.advance(torch.randint(0, V, (len(reading.starts),)))
        close = close or {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(reading.step.logits, reading.scores(), check_dtype=False, **close)


@torch.no_grad()
@pytest.mark.parametrize(
    "name, batch", [("gpt2", 2), ("qwen", 2), *((name, batch) for name in CONFIGS for batch in (1, 3))]
)
def test_the_programs_score_as_the_model_does(name, batch):
    check(Reading(model_of(CONFIGS[name]), 13, STARTS[batch]))


@torch.no_grad()
@pytest.mark.parametrize("T", [1, 16, 17, 95])
@pytest.mark.parametrize("name", ["gpt2", "qwen"])
def test_keys_may_fill_less_than_a_block_or_more_blocks_than_there_are_programs(name, T, monkeypatch):
    monkeypatch.setattr(gpu_step, "MAX_SPLITS", 2)
    check(Reading(model_of(CONFIGS[name]), T, [0], key_block=16), steps=1)


@torch.no_grad()
@pytest.mark.parametrize("name", ["gpt2", "qwen"])
def test_rows_that_start_blocks_apart_see_their_own_keys(name):
    reading = Reading(model_of(CONFIGS[name]), 70, [0, 33, 69], key_block=32)
    assert reading.step.splits == 4
    reading.step.cache.keys[:, 1, :, :33] = reading.step.cache.values[:, 1, :, :33] = 1e4  # padding is never read
    check(reading)


@torch.no_grad()
@pytest.mark.parametrize("window", [1, 16, 23, 200])
def test_a_window_may_begin_anywhere_in_a_block(window):
    config = GPT2.with_(window=window, num_heads=2, num_kv_heads=1, d_model=16, d_ff=7)
    check(Reading(model_of(config), 62, [0, 50], key_block=16), steps=1)


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 2])
def test_sixteen_bits_are_read_and_written_and_sums_are_of_thirty_two(batch):
    check(Reading(model_of(LLAMA, torch.float16), 13, STARTS[batch]), rtol=0, atol=0.01)


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 3])
def test_the_best_token_is_taken_and_noted(batch):
    reading = Reading(model_of(GPT2.with_(tied=False)), 13, STARTS[batch], greedy=True)
    step = reading.step
    reading.advance(torch.randint(0, V, (batch,)))
    made = [step.ids.clone()]
    for _ in range(2):
        best = reading.scores().argmax(-1)
        reading.advance()
        assert torch.equal(step.ids, best)
        made.append(best)
    assert torch.equal(step.tokens[:3], torch.stack(made))
    assert step.tokens[3:].eq(0).all()
    assert step.step.tolist() == [3] * batch
    assert step.slot.tolist() == [15] * batch


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 2])
def test_of_equal_scores_the_first_token_is_best(batch, monkeypatch):
    monkeypatch.setattr(gpu_step, "MAX_PROGRAMS", 1)
    model = model_of(GPT2.with_(tied=False))
    model.head.weight.zero_()
    model.head.weight[[47, 3, 31]] = model.final_norm.bias  # for every text the same, whatever is normed
    model.final_norm.weight.zero_()
    reading = Reading(model, 5, STARTS[batch][:1] * batch, greedy=True)
    reading.advance(torch.randint(0, V, (batch,)))
    reading.step.embed_next(chosen=False)
    assert reading.step.ids.tolist() == [3] * batch


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("token", [None, 0, V - 1])
def test_scores_that_are_no_numbers_are_reported_and_harm_nothing(batch, token):
    model = model_of(GPT2.with_(tied=False))
    reading = Reading(model, 5, [0] * batch, greedy=True)
    weight = model.final_norm.weight if token is None else model.head.weight[token]
    weight.fill_(float("nan"))
    reading.advance(torch.randint(0, V, (batch,)))
    reading.step.embed_next(chosen=False)
    assert all(0 <= i < V for i in reading.step.ids.tolist())
    assert reading.step.tokens[1].tolist() == [-1] * batch


@torch.no_grad()
@pytest.mark.parametrize("score", [float("nan"), float("inf"), -float("inf")])
def test_a_chosen_token_whose_scores_were_no_numbers_is_reported(score):
    reading = Reading(model_of(GPT2), 13, STARTS[2])
    reading.step.ids.copy_(torch.tensor([5, 6]))
    reading.step.embed_next(chosen=True, best=torch.tensor([0.5, score]))
    assert reading.step.tokens[0].tolist() == [5, -1]
    assert reading.step.ids.tolist() == [5, 6]


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 2])
def test_a_taken_token_brings_its_vector_and_its_place(batch):
    model = model_of(GPT2)
    reading = Reading(model, 13, STARTS[batch])
    ids = torch.randint(0, V, (batch,))
    reading.step.ids.copy_(ids)
    reading.step.embed_next(chosen=True)
    positions = 13 - torch.tensor(STARTS[batch])
    x = model.token_embedding.weight[ids] + model.position_embedding.weight[positions]
    torch.testing.assert_close(reading.step.x, x)
    assert torch.equal(reading.step.ids, ids)
    assert torch.equal(reading.step.tokens[0], ids)


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 2])
def test_the_last_place_of_the_context_is_used_and_none_after_it(batch):
    model = model_of(GPT2.with_(context_length=7))
    table = torch.full((8, 24), float("nan"))  # what lies behind the table of positions
    table[:7] = model.position_embedding.weight
    model.position_embedding.weight = nn.Parameter(table[:7])
    reading = Reading(model, 5, [0] * batch, capacity=16)
    check(reading)  # reads tokens 6 and 7 of 7
    reading.step.embed_next(chosen=True)
    torch.testing.assert_close(reading.step.x, model.token_embedding.weight[reading.step.ids])


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("where", ["embedding", "bias"])
def test_a_row_far_from_zero_keeps_its_digits_through_the_norm(where, batch):
    model = model_of(GPT2.with_(tied=False))
    if where == "embedding":
        model.token_embedding.weight += 1000
    else:  # the row gets there between two norms
        model.blocks[0].attention.out_proj.bias += 1000
    check(Reading(model, 13, STARTS[batch]), steps=1, rtol=0, atol=2e-3)
