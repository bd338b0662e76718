"""Every way to generate, in decoders of transformers: each query has the numbers that it has in one plain forward.

The texts are those that generate() passes to the model. The quick part runs with all tests; `make zoo` runs the rest.
"""

import copy
import functools
import inspect

import pytest
import torch
from torch.nn.functional import pad

import regard
from heads import dense
from heads.made_calls import made_call
from heads.zoo.classes import shrink

NEW, PROMPT = 8, 9
STATISTICS = (*(name for name in dense.ROWS if name not in ("lse", "largest_key")), "histogram")
OF_TOKENS = ("induction", "duplicate")
WAYS = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True},
    "beam": {"num_beams": 3},
    "prompt lookup": {"prompt_lookup_num_tokens": 3},
    "assisted": {},
    "static": {"cache_implementation": "static"},
    "no cache": {"use_cache": False},
}
ONE_TEXT = ("prompt lookup", "assisted")
MODELS = [
    "llama",
    "gpt2",
    "bloom",
    "gemma2",
    "gemma3_text",
    "mistral",
    "qwen2",
    "gpt_neox",
    "falcon",
    "mpt",
    "opt",
    "phi",
    "cohere2",
    "gpt_oss",
    "gptj",
    "codegen",
    "gpt_neo",
    "gpt_bigcode",
    "stablelm",
    "olmo2",
    "exaone4",
    "smollm3",
    "qwen3_moe",
    "deepseek_v3",
]
SIZES = {"gptj": {"rotary_dim": 4}, "codegen": {"rotary_dim": 4}, "deepseek_v3": {"num_key_value_heads": 4}}
QUICK = {
    ("bloom", "static", "eager"),
    ("gemma2", "prompt lookup", "eager"),
    ("gemma3_text", "prompt lookup", "sdpa"),
    ("mistral", "assisted", "eager"),
    ("gemma2", "beam", "eager"),
}
CASES = [
    pytest.param(*case, id=" ".join(case), marks=() if case in QUICK else pytest.mark.zoo)
    for case in ((model, way, how) for model in MODELS for way in WAYS for how in ("eager", "sdpa"))
    if not (case[0] == "mpt" and case[1] in ONE_TEXT)  # which it has not
]
pytestmark = pytest.mark.filterwarnings("ignore")


@functools.cache
def decoder(name):
    from transformers import AutoConfig, AutoModelForCausalLM

    config = shrink(AutoConfig.for_model(name), SIZES.get(name))
    config.pad_token_id, config.eos_token_id, config._experts_implementation = 0, None, "eager"
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "norm" not in parameter_name:
                parameter.normal_(0, 1.0 if "embed" in parameter_name else parameter.shape[-1] ** -0.5)
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = None, 0
    return model.eval()


def read_texts(model):
    """A list to which the whole text of every forward is added."""
    texts, prepare = [], model.prepare_inputs_for_generation

    @functools.wraps(prepare)
    def keeping(input_ids, *args, **kwargs):
        texts.append(input_ids.clone())
        return prepare(input_ids, *args, **kwargs)

    model.prepare_inputs_for_generation = keeping
    return texts


def plain_statistics(model, text, real):
    """Of every layer, by the definitions, from the eager weights of one forward."""
    model.set_attn_implementation("eager")
    inputs = {"attention_mask": real.long()}
    if "position_ids" in inspect.signature(model.forward).parameters:
        inputs["position_ids"] = (real.cumsum(-1) - 1).clamp(min=0)
    attentions = model(text, use_cache=False, output_attentions=True, **inputs).attentions
    calls = [made_call("", weights=w.double(), real=real, tokens=text) for w in attentions]
    return [dense.measure(call, STATISTICS) for call in calls]


def as_wide(mine, right):
    bins = max(mine.shape[-1], right.shape[-1])
    return [torch.where(t[..., :1].isnan(), torch.nan, pad(t, (0, bins - t.shape[-1]))) for t in (mine, right)]


def differences(layer, right, T):
    """The statistics that are not those of one plain forward."""
    known = [name for name in STATISTICS if layer.record.has(name)]
    assert {*STATISTICS} - {*known} <= {*OF_TOKENS}
    for name in known:
        mine, wanted = layer.record.read(name).double(), right[name][:, :, -T:].double()
        if name == "histogram":
            assert torch.equal(mine.isnan().any(-1), mine.isnan().all(-1))
            mine, wanted = as_wide(mine, wanted)
        if mine.shape != wanted.shape or not torch.allclose(mine, wanted, atol=3e-4, rtol=1e-3, equal_nan=True):
            yield name


@pytest.mark.parametrize(("name", "way", "how"), CASES)
@torch.no_grad()
def test_generation_is_reported_as_plain_forwards_of_its_texts(name, way, how):
    model = copy.deepcopy(decoder(name))
    plain, options = copy.deepcopy(model), dict(WAYS[way])
    try:
        model.set_attn_implementation(how)
    except ValueError:
        pytest.skip("has no SDPA")
    if way == "assisted":
        options["assistant_model"] = copy.deepcopy(model)
        for parameter in options["assistant_model"].get_output_embeddings().parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    for padded in (False,) if way in ONE_TEXT else (False, True):
        ids = torch.randint(5, 11, (1 if way in ONE_TEXT else 2, PROMPT), generator=torch.Generator().manual_seed(3))
        real = torch.ones_like(ids, dtype=torch.bool)
        real[-1, :3] = not padded
        torch.manual_seed(0)
        texts = read_texts(model)
        try:
            with regard.watch(model, collect=("default", "histogram")) as seen:
                model.generate(ids * real, attention_mask=real.long(), max_new_tokens=NEW, **options)
        except ValueError as error:
            if "not supported" in str(error) or "does not support" in str(error):
                pytest.skip(str(error))
            raise
        expect_plain(seen, texts, plain, real.repeat_interleave(3, 0) if way == "beam" else real)


def expect_plain(seen, texts, plain, real):
    """Each forward of the report is one of these texts, in all its statistics."""
    right = {}
    for forward in seen.forwards:
        T = forward[0].record.sizes[2]
        wrong = []
        for number, text in enumerate(texts):
            if text.shape[1] < T or text.shape[0] != forward[0].record.sizes[0]:
                continue
            if number not in right:
                whole = pad(real, (0, text.shape[1] - PROMPT), value=True)
                right[number] = plain_statistics(plain, text, whole)
            pairs = zip(forward, right[number], strict=True)
            wrong.append([f"{layer.name}: {one}" for layer, truth in pairs for one in differences(layer, truth, T)])
            if not wrong[-1]:
                break
        assert [] in wrong, min(wrong, key=len)
