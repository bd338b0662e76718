"""Generation by CUDA graphs: on a GPU it gives the text of the modules; and when the modules are used instead.

The step is tested without a GPU in test_gpu_step.py, the bookkeeping in test_gpu_decoder_interpreted.py.
"""

import copy
import pickle
import threading

import pytest
import torch

import regard
from gpt.generate.test_module_calls import MODIFICATIONS
from regard.attention.positions import Rotary, Stretch
from regard.gpt import GPT, GPTConfig
from regard.gpt.generate import generate
from regard.gpt.generate.generate import EagerDecoder, decoder_for
from regard.gpt.generate.options import SamplingOptions

pytest.importorskip("triton")
from regard.gpt.generate import gpu_decoder as decoder
from regard.gpt.generate.gpu_decoder import GraphDecoder
from regard.gpt.generate.gpu_step import MAX_BATCH, GPUStep, supports

V = 283
GPT2 = GPTConfig(vocab_size=V, context_length=331, num_layers=2, d_model=48, num_heads=3)
LLAMA = GPT2.with_(
    num_heads=4, num_kv_heads=2, d_model=96, d_ff=152, rotary=Rotary(stretch=Stretch(4.0, original=64)), norm="rms",
    feed_forward="swiglu", qkv_bias=False, bias=False, tied=False, qk_norm=True,
)  # fmt: skip
CONFIGS = {"gpt2": GPT2, "llama": LLAMA, "mistral": LLAMA.with_(window=37, qk_norm=False, rotary=Rotary())}
PROMPTS = [list(range(67)), [251, 3, 99], [17], list(range(44, 103))]
SAMPLED = {"temperature": 1.3, "top_k": 41, "top_p": 0.9}
GREEDY = SamplingOptions(temperature=0)


def model_of(config=GPT2, device="cuda", dtype=torch.float32):
    model = GPT(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.to(device, dtype)


def plainly(model, prompt, n, **options):
    """The same by the modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "decoder_for", EagerDecoder)
        return model.generate(prompt, n, **options)


def kept(model):
    return decoder._kept[model]


def test_what_is_kept_with_a_model_is_left_out_of_its_copies():
    model = model_of(device="cpu")
    decoder._kept[model] = threading.Lock()  # what nobody can copy
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(twin.state_dict(), model.state_dict())
        assert twin not in decoder._kept


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_our_models_are_supported(dtype):
    for config in CONFIGS.values():
        assert supports(model_of(config, "cpu", dtype), 1)
        assert supports(model_of(config, "cpu", dtype), MAX_BATCH)


@pytest.mark.parametrize("how", MODIFICATIONS)
def test_modified_models_are_not_supported(how):
    model = GPT(GPT2.with_(vocab_size=53, context_length=29, d_model=24, num_layers=3, dropout=0.2))
    assert supports(model, 1)
    MODIFICATIONS[how](model)
    assert not supports(model, 1)


def test_other_batch_sizes_dtypes_and_transposed_weights_are_not_supported():
    model = model_of(device="cpu")
    assert not supports(model, 0)
    assert not supports(model, MAX_BATCH + 1)
    assert not supports(model_of(device="cpu", dtype=torch.float64), 1)
    model.blocks[1].feed_forward.up.weight.data = model.blocks[1].feed_forward.up.weight.data.mT.contiguous().mT
    assert not supports(model, 1)


@pytest.mark.parametrize("kilobytes", [48, 99, 227])
@pytest.mark.parametrize("batch", [2, 17, 64])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_what_a_program_holds_fits_into_shared_memory(dtype, batch, kilobytes):
    step = GPUStep(model_of(device="cpu", dtype=dtype), batch, 256, greedy=True)
    step.shared_memory = kilobytes << 10
    for N, matrices in ((96, 1), (11008, 2), (50257, 1)):
        shape = step._block_sizes(N, 4096, matrices)
        held = shape["BK"] * (shape["BB"] + shape["BN"] * matrices) * dtype.itemsize
        assert held * (3 if batch == 64 else 2) <= step.shared_memory
        assert 16 <= shape["BK"] <= 256


def test_a_cpu_is_left_to_the_modules():
    assert isinstance(decoder_for(model_of(device="cpu"), 1, 20, GREEDY, None), EagerDecoder)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CONFIGS)
def test_alone_and_in_a_batch_it_is_the_text_of_the_modules(name):
    model = model_of(CONFIGS[name])
    assert isinstance(decoder_for(model, 1, 20, GREEDY, None), GraphDecoder)
    for options in ({"temperature": 0}, {"seed": 7, **SAMPLED}):
        alone = [
            plainly(model, p, 83, **options | ({"seed": 7 + i} if "seed" in options else {}))
            for i, p in enumerate(PROMPTS)
        ]
        assert model.generate(PROMPTS, 83, **options) == alone
        assert model.generate(PROMPTS[0], 83, **options) == alone[0]
        assert list(model.stream(PROMPTS[0], 83, **options)) == alone[0]
    assert len(set(alone[0])) > 5


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 2, 33, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_wide_layers_fit_into_the_gpu_whatever_the_batch(dtype, batch):
    model = model_of(LLAMA.with_(vocab_size=5003, d_ff=4099, num_layers=1), dtype=dtype)
    with torch.inference_mode():
        maker = decoder_for(model, batch, 20, GREEDY, None)  # a warning, which is an error here, if they did not
        assert isinstance(maker, GraphDecoder)
        ids = torch.randint(0, 5003, (batch, 5))
        maker.prefill(ids, torch.zeros(batch, dtype=torch.long))
        result = maker.next_tokens(3)
        texts = torch.cat([ids, result[:2].mT], dim=1).cuda()
        scores = model.double()(texts)[:, -1]
    # Whatever the dtype, what was chosen is the best but for rounding.
    chosen = scores.gather(1, result[2, :, None].cuda())[:, 0]
    close = {torch.float32: 1e-4, torch.float16: 0.1, torch.bfloat16: 0.8}[dtype]
    assert (scores.amax(-1) - chosen).max() < close


@pytest.mark.gpu
def test_a_second_text_is_played_from_the_same_recording():
    model = model_of()
    model.generate(PROMPTS[1], 40, temperature=0)
    first, graph = kept(model), kept(model).decode
    for prompt in ([5, 6], list(range(64))):
        assert model.generate(prompt, 40, temperature=0) == plainly(model, prompt, 40, temperature=0)
    assert kept(model) is first
    assert kept(model).decode is graph
    assert list(first.prefills) == [64]
    assert model.generate(list(range(65)), 40, temperature=0) == plainly(model, list(range(65)), 40, temperature=0)
    assert list(first.prefills) == [64, 128]


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 63, 64, 65, 290, 320, 330])
def test_prompts_of_every_length_may_fill_the_context(size):
    model, prompt = model_of(), torch.randint(0, V, (size,)).tolist()
    result = model.generate(prompt, 1000, seed=3)
    assert len(result) == 332 - size  # the last token is chosen and never read
    assert result == plainly(model, prompt, 1000, seed=3)


@pytest.mark.gpu
def test_weights_that_change_are_read_and_weights_that_move_are_recorded_anew():
    model = model_of()
    model.generate([5, 6], 23, temperature=0)
    first = kept(model)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    ids = torch.randint(0, V, (3, 17), device="cuda")
    model.loss(ids[:, :-1], ids[:, 1:]).backward()
    optimizer.step()
    assert model.generate([5, 6], 23, temperature=0) == plainly(model, [5, 6], 23, temperature=0)
    assert kept(model) is first
    model.load_state_dict(model_of().state_dict())
    assert model.generate([5, 6], 23, temperature=0) == plainly(model, [5, 6], 23, temperature=0)
    assert kept(model) is first
    model.load_state_dict(model_of().state_dict(), assign=True)
    assert model.generate([5, 6], 23, temperature=0) == plainly(model, [5, 6], 23, temperature=0)
    assert kept(model) is not first
    model.to(torch.bfloat16).to(torch.float32)
    assert model.generate([5, 6], 23, temperature=0) == plainly(model, [5, 6], 23, temperature=0)


@pytest.mark.gpu
def test_a_copy_of_a_model_that_has_written_writes_by_itself():
    model = model_of()
    text = model.generate([5, 6], 23, temperature=0)
    twins = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    for twin in twins:
        assert twin.generate([5, 6], 23, temperature=0) == text


@pytest.mark.gpu
def test_two_texts_at_once_do_not_mix():
    model = model_of()
    a, b = model.stream([5, 6], 23, seed=1), model.stream([7], 23, seed=2)
    result = list(zip(a, b, strict=True))
    assert [x for x, _ in result] == plainly(model, [5, 6], 23, seed=1)
    assert [y for _, y in result] == plainly(model, [7], 23, seed=2)


@pytest.mark.gpu
def test_threads_write_side_by_side():
    model = model_of()
    expected, result = [plainly(model, [i, 5], 23, seed=i) for i in range(4)], [None] * 4

    def write(i):
        result[i] = model.generate([i, 5], 23, seed=i)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert result == expected


@pytest.mark.gpu
def test_inference_mode_leaves_nothing_that_others_cannot_write_to():
    model = model_of()
    text = model.generate([5, 6], 23, temperature=0)  # in inference mode
    first = kept(model)
    for mode in (torch.no_grad(), torch.enable_grad(), torch.inference_mode()):
        with mode:
            maker = decoder_for(model, 1, 25, GREEDY, None)
            maker.prefill(torch.tensor([[5, 6]]), torch.tensor([0]))
            assert maker.next_tokens(23)[:, 0].tolist() == text
    assert kept(model) is first


@pytest.mark.gpu
def test_whoever_watches_sees_every_token():
    model = model_of()
    text = model.generate([5, 6, 7], 11, temperature=0)
    first = kept(model)
    with regard.watch(model) as seen:
        assert model.generate([5, 6, 7], 11, temperature=0) == text
    assert seen[0].entropy.shape[-1] == 13
    with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16):
        assert isinstance(decoder_for(model, 1, 20, GREEDY, None), EagerDecoder)
    heard = []
    handle = model.blocks[1].register_forward_hook(lambda *_: heard.append(1))
    assert model.generate([5, 6, 7], 11, temperature=0) == text
    handle.remove()
    assert len(heard) == 11
    assert model.generate([5, 6, 7], 11, temperature=0) == text
    assert kept(model) is first


@pytest.mark.gpu
def test_a_model_that_nobody_needs_gives_its_memory_back_at_once():
    model_of().generate([5, 6], 23, temperature=0)  # torch's own working memory stays
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    model = model_of(GPT2.with_(d_model=384))
    model.generate([5, 6], 23, temperature=0)
    size = sum(p.nbytes for p in model.parameters())
    del model
    assert torch.cuda.memory_allocated() - before < size / 2


@pytest.mark.gpu
def test_scores_that_are_nan_are_an_error_and_harm_nothing():
    model = model_of()
    text = model.generate([5, 6], 23, temperature=0)
    weight = model.final_norm.weight.clone()
    with torch.no_grad():
        model.final_norm.weight.fill_(float("nan"))
    for prompt in ([5, 6], [[5, 6], [7]]):
        with pytest.raises(ValueError, match="the model's scores after the prompt are NaN or infinite"):
            model.generate(prompt, 23, temperature=0)
    with torch.no_grad():
        model.final_norm.weight.copy_(weight)
    assert model.generate([5, 6], 23, temperature=0) == text


@pytest.mark.gpu
def test_a_gpu_that_is_not_the_current_one_will_do():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    model = model_of(device="cuda:1")
    assert model.generate(PROMPTS, 23, temperature=0) == plainly(model, PROMPTS, 23, temperature=0)


@pytest.mark.gpu
def test_as_many_tokens_as_there_is_room_for_and_no_more():
    maker = decoder.graph_decoder_for(model_of(), 1, 7, GREEDY, None)
    maker.prefill(torch.tensor([[5, 6]]), torch.tensor([0]))
    with pytest.raises(ValueError, match="6 tokens were asked for, but this decoder can make 5 after a prompt of 2"):
        maker.next_tokens(6)
    assert maker.next_tokens(5).shape == (5, 1)
