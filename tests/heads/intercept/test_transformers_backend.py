"""attn_implementation="regard" in models of transformers."""

import pytest
import torch

from heads import models
from heads.models import calls, ids, watched
from regard.heads.intercept.transformers_backend import register

LEFT = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1]])


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "bert", "t5"])
@torch.no_grad()
def test_the_registered_attention_equals_sdpa_bit_for_bit(name):
    register()
    register()
    model, x = getattr(models, name)(), ids()
    inputs = {"input_ids": x, "attention_mask": LEFT, **({"decoder_input_ids": ids(2, 5)} if name == "t5" else {})}
    expected = model(**inputs)[0]
    _, reports_before = watched(model, **inputs)
    model.set_attn_implementation("regard")
    assert torch.equal(model(**inputs)[0], expected)
    out, reports = watched(model, **inputs)
    assert torch.equal(out[0], expected)
    for ours, theirs in zip(calls(reports), calls(reports_before), strict=True):
        assert torch.equal(models.weights_of(ours), models.weights_of(theirs))


def test_a_model_can_be_built_with_the_registered_attention():
    from transformers import AutoModel, LlamaConfig

    register()
    model = AutoModel.from_config(LlamaConfig(**models.small()), attn_implementation="regard")
    assert len(watched(model, ids())[1]) == 2


@pytest.mark.parametrize("name", ["GptOss", "Bloom"])
def test_a_model_that_transformers_does_not_run_by_sdpa_is_refused(name):
    import transformers

    register()
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 53}
    more = {"num_key_value_heads": 2, "intermediate_size": 48, "head_dim": 8, "num_local_experts": 4}
    config = getattr(transformers, f"{name}Config")(**sizes, **(more if name == "GptOss" else {}))
    model = transformers.AutoModel.from_config(config, attn_implementation="regard")
    message = rf'{name}Model cannot run with this attention.*use attn_implementation="eager", which regard\.watch'
    with pytest.raises(ValueError, match=message):
        model(ids())
    model = transformers.AutoModel.from_config(config, attn_implementation="eager")
    assert len(watched(model, ids())[1]) == 2


@pytest.mark.parametrize("name", ["Falcon", "GPTJ", "GPTNeo"])
def test_a_model_that_chooses_its_attention_by_itself_is_refused_with_what_it_knows(name):
    import transformers

    register()
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 53}
    if name == "GPTJ":
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 8, "vocab_size": 53}
    if name == "GPTNeo":
        sizes = {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global"], 2]]}
    config = getattr(transformers, f"{name}Config")(**sizes)
    best = "sdpa" if name == "Falcon" else "eager"
    message = rf'{name}Model cannot run with this attention.*by itself; use attn_implementation="{best}"'
    with pytest.raises(ValueError, match=message):
        transformers.AutoModel.from_config(config, attn_implementation="regard")
    model = transformers.AutoModel.from_config(config, attn_implementation=best)
    assert len(watched(model, ids())[1]) == 2


def test_a_model_that_chooses_keys_for_each_query_is_refused():
    """DeepSeek V3.2 would attend to all keys."""
    from transformers import DeepseekV32Config, DeepseekV32Model

    register()
    model = DeepseekV32Model._from_config(DeepseekV32Config(**models.sparse()), attn_implementation="regard").eval()
    message = r'DeepseekV32Attention cannot run with this attention: the keys that it chose .*"eager"'
    with pytest.raises(ValueError, match=message), torch.no_grad():
        model(ids())
