"""The bookkeeping of the GPU decoder without a GPU: kernels run by Triton's interpreter, graphs replayed by Python.

TRITON_INTERPRET=1 pytest, the third command of `make test`
"""

import copy
import gc
import os
import warnings
import weakref
from functools import partial

import pytest
import torch

from regard.attention.positions import Rotary
from regard.gpt import GPT, GPTConfig
from regard.gpt.generate import generate
from regard.gpt.generate.generate import EagerDecoder
from regard.gpt.generate.options import SamplingOptions
from regard.gpt.generate.sample import noises

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1", allow_module_level=True)
decoder = pytest.importorskip("regard.gpt.generate.gpu_decoder")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's numpy meets infinities

GPT2 = GPTConfig(vocab_size=53, context_length=29, num_layers=1, d_model=16, num_heads=2, d_ff=19)
QWEN = GPT2.with_(rotary=Rotary(), norm="rms", feed_forward="swiglu", num_kv_heads=1, qk_norm=True, tied=False)
PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [51, 3], [17, 44, 45]]
GREEDY = SamplingOptions(temperature=0)


class Replay:
    """A graph that Python replays. It holds no reference to what it runs, as on a GPU."""

    def __init__(self, of, run):
        method, args = (run.func, run.args) if isinstance(run, partial) else (run, ())
        self.replay = partial(method.__func__, weakref.proxy(of), *args)


@pytest.fixture(autouse=True)
def captured(monkeypatch):
    """Graphs replayed by Python, for prompts of 4, 8, … tokens; a list with an item for each."""
    made = []
    monkeypatch.setattr(decoder, "PROMPT_MULTIPLE", 4)
    monkeypatch.setattr(decoder, "CAPACITY_MULTIPLE", 16)
    monkeypatch.setattr(
        decoder.CapturedGraphs, "_capture", lambda self, run: made.append(1) or run() or Replay(self, run)
    )
    monkeypatch.setattr(generate, "decoder_for", decoder.graph_decoder_for)
    # Few programs, because the interpreter is slow.
    sizes_of = decoder.GPUStep._block_sizes
    monkeypatch.setattr(
        decoder.GPUStep, "_block_sizes", lambda self, *args, **options: {**sizes_of(self, *args, **options), "BN": 64}
    )
    return made


def model_of(config=GPT2):
    model = GPT(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


def plainly(model, prompt, n, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "decoder_for", EagerDecoder)
        return model.generate(prompt, n, **options)


@pytest.mark.parametrize("config", [GPT2, QWEN], ids=["gpt2", "qwen"])
def test_texts_are_those_of_the_model_itself(config):
    model = model_of(config)
    assert model.generate([5, 6], 5, temperature=0) == plainly(model, [5, 6], 5, temperature=0)
    assert model.generate(PROMPTS, 4, seed=7) == plainly(model, PROMPTS, 4, seed=7)


def test_a_second_text_needs_no_recording_but_for_a_prompt_of_another_length(captured):
    model = model_of()
    for prompt, count in (([5, 6, 7], 2), ([8, 9, 10, 11], 2), ([12], 2), ([5, 6, 7, 8, 9], 3), ([9], 3)):
        assert model.generate(prompt, 3, seed=1) == plainly(model, prompt, 3, seed=1)
        assert len(captured) == count
    graphs = decoder._kept[model]
    model.generate([5], 3, seed=1, top_k=7)
    assert decoder._kept[model] is not graphs
    assert len(captured) == 5


@pytest.mark.parametrize("size", [25, 29])
def test_a_text_may_fill_the_context(size):
    model, prompt = model_of(), torch.randint(0, 53, (size,)).tolist()
    result = model.generate(prompt, 1000, seed=3)  # more random numbers than tokens fit
    assert result == plainly(model, prompt, 1000, seed=3)
    assert len(result) == 30 - size  # the last token is chosen and never read


def test_two_texts_at_once_do_not_mix(captured):
    model = model_of()
    a, b = model.stream([5, 6], 5, seed=1), model.stream([7], 5, seed=2)
    result = [(next(a), next(b)) for _ in range(3)]
    c = model.generate([8], 3, seed=3)
    result += zip(a, b, strict=True)
    assert [x for x, _ in result] == plainly(model, [5, 6], 5, seed=1)
    assert [y for _, y in result] == plainly(model, [7], 5, seed=2)
    assert c == plainly(model, [8], 3, seed=3)


def test_a_finished_stream_that_is_kept_keeps_no_recording(captured):
    model, kept = model_of(), []
    for _ in range(3):
        kept.append(model.stream([5, 6], 3, seed=1))
        list(kept[-1])
    assert len(captured) == 2
    stop = list(model.stream([5, 6], 3, seed=1))[1]
    for _ in range(2):
        kept.append(model.stream([5, 6], 3, seed=1, stop=stop))
        list(kept[-1])
    for _ in range(2):  # without asking for the end
        kept.append(model.stream([5, 6], 3, seed=1))
        next(kept[-1]), next(kept[-1]), next(kept[-1])
    assert len(captured) == 2


def test_new_weights_are_used_and_moved_ones_recorded_anew(captured):
    model = model_of()
    model.generate([5, 6], 3, temperature=0)
    with torch.no_grad():
        model.token_embedding.weight.normal_()
    assert model.generate([5, 6], 3, temperature=0) == plainly(model, [5, 6], 3, temperature=0)
    assert len(captured) == 2
    model.load_state_dict({name: t * 2 for name, t in model.state_dict().items()}, assign=True)
    assert model.generate([5, 6], 3, temperature=0) == plainly(model, [5, 6], 3, temperature=0)
    assert len(captured) == 4


def test_weights_that_move_during_a_text_are_kept_until_it_is_done():
    model = model_of()
    expected = plainly(model, [5, 6], 4, temperature=0)
    where = model.final_norm.weight.data_ptr()
    stream = model.stream([5, 6], 4, temperature=0)
    assert next(stream) == expected[0]
    model.final_norm.weight.data = torch.zeros(16)
    assert where in [weight.data_ptr() for weight in stream._generation.decoder.weights]


def test_weights_that_moved_are_let_go_with_the_text():
    model = model_of()
    model.generate([5, 6], 3, temperature=0)
    old = [weakref.ref(p.data.untyped_storage()) for p in model.parameters()]
    model.load_state_dict({name: t * 2 for name, t in model.state_dict().items()}, assign=True)
    gc.collect()
    assert [ref() for ref in old] == [None] * len(old)


def test_a_model_that_knows_its_owner_is_let_go_all_the_same():
    model = model_of()
    model.owner = lambda: model
    model.generate([5, 6], 3, temperature=0)
    was = weakref.ref(model)
    del model
    gc.collect()
    assert was() is None


def test_a_projection_that_moved_is_captured_anew(captured):
    model = model_of(QWEN)
    model.generate([5, 6], 3, temperature=0)
    key = model.blocks[0].attention.W_key.weight
    key.data = key.data.clone() * 2
    assert model.generate([5, 6], 3, temperature=0) == plainly(model, [5, 6], 3, temperature=0)
    assert len(captured) == 4


def test_a_copy_records_for_itself():
    model = model_of()
    text = model.generate([5, 6], 3, temperature=0)
    twin = copy.deepcopy(model)
    assert twin not in decoder._kept
    with torch.no_grad():
        model.final_norm.weight.zero_()
    assert twin.generate([5, 6], 3, temperature=0) == text


def test_a_model_that_nobody_needs_is_gone_at_once():
    model = model_of()
    model.generate([5, 6], 3, temperature=0)
    graphs, model_was = weakref.ref(decoder._kept[model]), weakref.ref(model)
    gc.collect()
    gc.disable()
    try:
        del model
        assert model_was() is None
        assert graphs() is None
    finally:
        gc.enable()


def test_one_recording_is_kept_and_it_is_gone_before_the_next_one_asks_for_memory(monkeypatch):
    model, gone = model_of(), []
    model.generate([5, 6], 2, temperature=0)
    first, build = weakref.ref(decoder._kept[model]), decoder.GPUStep.__init__
    monkeypatch.setattr(
        decoder.GPUStep, "__init__", lambda *args, **options: gone.append(first() is None) or build(*args, **options)
    )
    model.generate([[5, 6], [7]], 2, temperature=0)
    assert gone == [True]


def test_inference_mode_leaves_nothing_that_others_cannot_write_to():
    model = model_of()
    with torch.inference_mode():
        text = model.generate([5, 6], 3, temperature=0)
    for mode in (torch.no_grad(), torch.enable_grad()):
        with mode:
            maker = decoder.graph_decoder_for(model, 1, 5, GREEDY, None)
            maker.prefill(torch.tensor([[5, 6]]), torch.tensor([0]))
            assert maker.next_tokens(3)[:, 0].tolist() == text


def test_as_many_tokens_as_were_asked_for_and_never_more_than_there_is_room_for():
    model = model_of()
    maker = decoder.graph_decoder_for(model, 2, 7, GREEDY, None)
    with pytest.raises(
        ValueError, match="a prompt of 8 tokens does not fit; build the decoder with capacity=9 or more"
    ):
        maker.prefill(torch.zeros(2, 8, dtype=torch.long), torch.tensor([0, 0]))
    maker.prefill(torch.tensor([[5, 6], [0, 7]]), torch.tensor([0, 1]))
    result = torch.cat([maker.next_tokens(1), maker.next_tokens(3)])
    assert result.mT.tolist() == plainly(model, [[5, 6], [7]], 4, temperature=0)
    with pytest.raises(ValueError, match="6 tokens were asked for, but this decoder can make 5 after a prompt of 2"):
        maker.next_tokens(2)
    assert maker.next_tokens(1).shape == (1, 2)


def test_chance_is_asked_for_where_it_has_a_part():
    model = model_of()
    with pytest.raises(ValueError, match="needs noise, a number from 0 to 1 for each token"):
        decoder.graph_decoder_for(model, 1, 7, SamplingOptions(), None)
    maker = decoder.graph_decoder_for(model, 1, 7, SamplingOptions(), noises(3, 2))
    del model  # the decoder needs it as long as it lives
    maker.prefill(torch.tensor([[5, 6]]), torch.tensor([0]))
    with pytest.raises(ValueError, match="3 tokens were asked for, but this decoder can make 2"):
        maker.next_tokens(3)


def test_scores_that_are_nan_are_an_error():
    model = model_of()
    with torch.no_grad():
        model.final_norm.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="the model's scores after the prompt are NaN or infinite; are its weights"):
        model.generate([5, 6], 3, temperature=0)
    with torch.no_grad():
        model.final_norm.weight.fill_(1.0)
    assert len(model.generate([5, 6], 3, temperature=0)) == 3


@pytest.mark.parametrize("prompts", [[[5, 6, 7]], [[5, 6, 7], [8]]], ids=["one row", "two rows"])
@pytest.mark.parametrize("options", [{"temperature": 0}, {"seed": 3}], ids=["greedy", "sampled"])
def test_scores_that_become_nan_are_an_error_where_they_do(prompts, options):
    model = model_of()
    with torch.no_grad():
        model.position_embedding.weight[5] = float("nan")
    whole = plainly(model, prompts, 3, **options)
    assert model.generate(prompts, 3, **options) == whole  # positions up to 4 are read
    with pytest.raises(ValueError, match="the model's scores after 3 new tokens are NaN or infinite"):
        model.generate(prompts, 4, **options)


def test_scores_of_minus_infinity_are_an_error_too():
    model = model_of(GPT2.with_(tied=False))
    with torch.no_grad():
        model.head.weight.fill_(-torch.inf)
        model.final_norm.weight.zero_()
        model.final_norm.bias.fill_(1.0)
    with pytest.raises(ValueError, match="the model's scores after the prompt are NaN or infinite"):
        model.generate([5, 6], 3, temperature=0)


def test_programs_that_cannot_be_built_are_told_of_once_and_done_without(monkeypatch):
    model, built = model_of(), []

    def fail(*_):
        built.append(1)
        raise decoder.TritonError("out of resource")

    monkeypatch.setattr(decoder.GPUStep, "score", fail)
    with pytest.warns(UserWarning, match="cannot be compiled for this GPU, model and batch of 1 .TritonError."):
        assert decoder.graph_decoder_for(model, 1, 7, GREEDY, None) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decoder.graph_decoder_for(model, 1, 9, GREEDY, None) is None
    assert built == [1]
    assert model not in decoder._kept
    decoder._unsupported.clear()


def test_autocast_is_left_to_the_modules():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert decoder.graph_decoder_for(model_of(), 1, 7, GREEDY, None) is None
