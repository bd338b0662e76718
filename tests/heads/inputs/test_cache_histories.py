"""Histories of a cache: whatever is done to it between two forwards, what a watch reports is that of one plain forward.

Forwards are joined into one text, or kept apart; in both cases each query has the numbers that it has where the model
reads its whole text at once.
"""

import copy
import random
from functools import partial

import pytest
import torch
from torch.testing import assert_close

import regard
from heads import models
from heads.dense import ROWS
from regard.heads.calls.call import OwnWeights

close = partial(assert_close, rtol=0, atol=2e-5, equal_nan=True)


class Transformers:
    """A model of transformers with its own caches; drops: these keep the keys of a sliding window only."""

    def __init__(self, make, how, drops=False):
        self.model, self.drops, self.crops = make(), drops, not drops
        self.model.set_attn_implementation(how)

    def cache(self, batch):
        from transformers import DynamicCache

        return DynamicCache(config=self.model.config) if self.drops else DynamicCache()

    def run(self, ids, cache):
        self.model(ids, past_key_values=cache)

    def crop(self, cache, length):
        if length < cache.get_seq_length():
            cache.crop(length - cache.get_seq_length())

    def reorder(self, cache, order):
        cache.reorder_cache(order)


def sparse():
    from transformers import DeepseekV32Config, DeepseekV32ForCausalLM

    return DeepseekV32ForCausalLM(DeepseekV32Config(**models.sparse())).eval()


class Ours:
    """regard.GPT with its own cache."""

    crops = True

    def __init__(self, **options):
        sizes = {"vocab_size": 53, "context_length": 64, "num_layers": 2, "d_model": 12, "num_heads": 3}
        self.model = regard.GPT(regard.GPTConfig(**sizes, **options)).eval()

    def cache(self, batch):
        return self.model.cache(batch)

    def run(self, ids, cache):
        self.model(ids, cache=cache)

    def crop(self, cache, length):
        cache.length = length

    def reorder(self, cache, order):
        cache.keys, cache.values = cache.keys[:, order], cache.values[:, order]


class History:
    """Random things that are done with caches, and the texts that the model has read after each forward."""

    def __init__(self, subject, seed):
        self.subject, self.random = subject, random.Random(seed)
        self.draw = torch.Generator().manual_seed(seed)
        self.texts = []  # (ids, number of queries) of each forward
        self.branches = []  # [ids, cache]

    def ids(self, batch, size):
        return torch.randint(3, 7, (batch, size), generator=self.draw)

    def prefill(self):
        batch = self.random.choice([1, 2, 3])
        self.branches.append([self.ids(batch, 0), self.subject.cache(batch)])
        self.read(self.branches[-1], self.random.randint(3, 8))

    def read(self, branch, size):
        new = self.ids(branch[0].shape[0], size)
        self.subject.run(new, branch[1])
        branch[0] = torch.cat([branch[0], new], 1)
        self.texts.append((branch[0], size))

    def step(self, branch):
        self.read(branch, 1)

    def several(self, branch):
        self.read(branch, self.random.randint(2, 4))

    def fork(self, branch):
        self.branches.append([branch[0], copy.deepcopy(branch[1])])

    def crop(self, branch):
        length = self.random.randint(2, branch[0].shape[1])
        if self.subject.crops:
            self.subject.crop(branch[1], length)
            branch[0] = branch[0][:, :length]

    def reorder(self, branch):
        batch = branch[0].shape[0]
        order = torch.randint(0, batch, (batch,), generator=self.draw)
        self.subject.reorder(branch[1], order)
        branch[0] = branch[0][order]

    def beam(self, branch):
        for _ in range(3):
            self.reorder(branch)
            self.step(branch)

    def speculate(self, branch):
        self.several(branch)
        self.crop(branch)
        self.step(branch)

    def swap(self, branch):
        """Another text of the same length in the same cache."""
        other = [torch.empty_like(branch[0][:, :0]), self.subject.cache(branch[0].shape[0])]
        self.read(other, branch[0].shape[1])
        branch[:] = other

    def run(self, length):
        self.prefill()
        for _ in range(length):
            kind = self.random.choice(
                ["prefill", "step", "step", "several", "fork", "crop", "reorder", "beam", "speculate", "swap"]
            )
            branch = self.random.choice(self.branches)
            self.prefill() if kind == "prefill" else getattr(self, kind)(branch)


SUBJECTS = {
    "gpt2": partial(Transformers, models.gpt2, "sdpa"),
    "gpt2, eager": partial(Transformers, models.gpt2, "eager"),
    "llama": partial(Transformers, models.llama, "sdpa"),
    "llama, eager": partial(Transformers, models.llama, "eager"),
    "a window by its mask": partial(Transformers, models.mistral, "sdpa"),
    "a window by its mask, eager": partial(Transformers, models.mistral, "eager"),
    "a window that drops keys": partial(Transformers, models.mistral, "sdpa", drops=True),
    "a window that drops keys, eager": partial(Transformers, models.mistral, "eager", drops=True),
    "ours": Ours,
}


def expect_plain(seen, history, model):
    """Every row of every forward is as the model has it when it reads that text at once."""
    found = 0
    for forward in seen.forwards:
        (run,) = forward._forwards
        text, _ = history.texts[run.number]
        with regard.watch(model, collect=("default", "histogram")) as plain:
            model(text)
        for layer, whole in zip(forward, plain, strict=True):
            _, _, T, S = layer.record.sizes
            dropped = text.shape[1] - S
            step = layer.record.steps[-1]
            assert torch.equal(step.call.origin.tokens, text[:, -step.keys :])
            for name in ROWS:
                if name == "largest_key":
                    continue  # of equal weights, any
                if layer.record.has(name) and not (
                    name == "lse" and isinstance(layer.record.steps[0].call.attention, OwnWeights)
                ):
                    close(getattr(layer, name), getattr(whole, name)[:, :, -T:], msg=lambda m, n=name: f"{n}: {m}")
            exact = whole.weights()[:, :, -T:]
            if layer.record.kept:
                close(layer.weights(), exact[..., dropped:])
            close(layer.received, exact.sum(2)[..., dropped:])
        found += T
    assert found == sum(size for _, size in history.texts)


QUICK = [("llama, eager", None), ("a window that drops keys, eager", False), ("ours", None)]
CASES = [(name, keep) for name in SUBJECTS for keep in (None, False)]


@pytest.mark.parametrize(("name", "keep", "seed"), [(*case, 1) for case in QUICK])
def test_whatever_happens_to_a_cache_every_query_is_reported_as_in_one_plain_forward(name, keep, seed):
    expect_history(name, keep, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "keep"), CASES)
def test_more_histories_of_more_caches(name, keep):
    for seed in range(3):
        expect_history(name, keep, seed)


@torch.no_grad()
def expect_history(name, keep, seed):
    torch.manual_seed(11)
    subject = SUBJECTS[name]()
    history = History(subject, seed)
    with regard.watch(subject.model, collect=("default", "histogram"), keep=keep) as seen:
        history.run(7)
    expect_plain(seen, history, subject.model)


@pytest.mark.parametrize("how", ["sdpa", "eager"])
@torch.no_grad()
def test_two_continuations_of_one_cache_are_two_texts(how):
    subject = Transformers(models.llama, how)
    history = History(subject, 0)
    with regard.watch(subject.model) as seen:
        history.prefill()
        history.fork(history.branches[0])
        for branch in history.branches:
            history.step(branch)
        history.step(history.branches[0])
    expect_plain(seen, history, subject.model)
    assert [one.sizes()[0][0][2] for one in seen.forwards] == [history.texts[-1][0].shape[1], 1]


@pytest.mark.parametrize("how", ["sdpa", "eager"])
@torch.no_grad()
def test_beam_search_is_reported_as_the_texts_that_are_left(how):
    torch.manual_seed(3)
    model, x = models.gpt2(), torch.randint(3, 9, (2, 5))
    model.set_attn_implementation(how)
    read = []
    hook = model.register_forward_pre_hook(lambda _, args, kwargs: read.append(kwargs["input_ids"]), with_kwargs=True)
    with regard.watch(model) as seen:
        model.generate(x, max_new_tokens=9, num_beams=3, do_sample=False, eos_token_id=None, pad_token_id=0)
    hook.remove()
    assert len(seen.forwards) == 1
    assert len(read) == 9
    text = seen[0].record.steps[-1].call.origin.tokens
    with regard.watch(model) as plain:
        model(text)
    for layer, whole in zip(seen, plain, strict=True):
        for name in ("entropy", "distance", "sink", "previous", "induction", "duplicate", "received"):
            close(getattr(layer, name), getattr(whole, name))
        close(layer.weights(), whole.weights())


@torch.no_grad()
def test_keys_that_a_step_does_not_choose_are_still_keys_of_the_text():
    """Step by step, the model may choose others than at once: its scores are often equal."""
    torch.manual_seed(5)
    model, x = sparse(), torch.randint(3, 9, (2, 7))
    model.set_attn_implementation("eager")
    how = {"do_sample": False, "eos_token_id": None, "output_attentions": True, "return_dict_in_generate": True}
    with regard.watch(model) as seen:
        steps = model.generate(x, max_new_tokens=5, **how).attentions
    assert len(seen.forwards) == 1
    for number, layer in enumerate(seen):
        weights = [step[number] for step in steps]
        whole = torch.cat([torch.nn.functional.pad(one, (0, 11 - one.shape[3])) for one in weights], 2)
        close(layer.weights(), whole)
        close(layer.received, whole.sum(2))
        at = torch.arange(11)
        close(layer.distance, (whole * (at[:, None] - at).abs()).sum(-1))
        assert not layer.entropy.isnan().any()


@pytest.mark.parametrize("how", ["sdpa", "eager"])
@pytest.mark.parametrize("keep", [None, False])
@torch.no_grad()
def test_steps_of_a_sliding_cache_whose_prompt_was_not_watched_are_placed_in_the_text(how, keep, tmp_path):
    from transformers import DynamicCache

    model, text = models.mistral(), models.ids(2, 17)
    model.set_attn_implementation(how)
    cache = DynamicCache(config=model.config)
    model(text[:, :11], past_key_values=cache)
    with regard.watch(model, keep=keep, collect=("default", "histogram", "received_mean")) as seen:
        for at in range(11, 17):
            model(text[:, at : at + 1], past_key_values=cache)
    seen.save(tmp_path / "seen")
    with regard.watch(model, collect=("default", "histogram")) as plain:
        model(text)
    assert len(seen.forwards) == 1
    for report in (seen, regard.load_seen(tmp_path / "seen")):
        for layer, whole in zip(report, plain, strict=True):
            S = layer.record.sizes[3]
            for name in ("entropy", "distance", "sink", "previous", "self", "next", "largest", "histogram"):
                mine, right = getattr(layer, name), getattr(whole, name)[:, :, 11:]
                assert_close(mine, right[..., : mine.shape[-1]], equal_nan=True, rtol=1e-4, atol=2e-5)
            received = whole.weights()[:, :, 11:].sum(2)[..., -S:]
            assert_close(layer.received, received, rtol=1e-4, atol=2e-5)
            queries = (whole.weights()[:, :, 11:] > 0).sum(2)[..., -S:]
            assert_close(layer.received_mean, received / queries, rtol=1e-4, atol=2e-5, equal_nan=True)
