"""Models by transformers: every weight is from the files, or an error names what is wrong."""

import json
import os
import re

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard import GPT
from regard.commands.shared.models import load_reader
from regard.commands.shared.with_transformers import check_files, load_model, quiet_transformers

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 307,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 22,
    "max_position_embeddings": 61,
}
GPT2_SIZES = {"vocab_size": 307, "n_embd": 12, "n_layer": 2, "n_head": 2, "n_positions": 61}
T5_SIZES = {"vocab_size": 307, "d_model": 12, "d_kv": 6, "num_heads": 2, "num_layers": 2, "d_ff": 22}
BART_SIZES = {
    "vocab_size": 307, "d_model": 12, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 22, "decoder_ffn_dim": 22, "max_position_embeddings": 61,
}  # fmt: skip
# The class that was saved, and the one that is watched.
CLASSES = {
    "BertForMaskedLM": (SIZES, "BertModel"),
    "BertForPreTraining": (SIZES, "BertModel"),
    "BertForSequenceClassification": (SIZES, "BertModel"),
    "BertForQuestionAnswering": (SIZES, "BertModel"),
    "BertModel": (SIZES, "BertModel"),
    "RobertaForMaskedLM": (SIZES, "RobertaModel"),
    "XLMRobertaForTokenClassification": (SIZES, "XLMRobertaModel"),
    "DebertaV2ForMaskedLM": (SIZES, "DebertaV2Model"),
    "ElectraForPreTraining": ({**SIZES, "embedding_size": 10}, "ElectraModel"),
    "AlbertForMaskedLM": ({**SIZES, "embedding_size": 10}, "AlbertModel"),
    "MPNetForMaskedLM": (SIZES, "MPNetModel"),
    "DistilBertForMaskedLM": (
        {"vocab_size": 307, "dim": 12, "n_layers": 2, "n_heads": 2, "hidden_dim": 22},
        "DistilBertModel",
    ),
    "GPT2LMHeadModel": (GPT2_SIZES, "GPT2LMHeadModel"),
    "GPT2ForSequenceClassification": (GPT2_SIZES, "GPT2Model"),
    "GPTNeoXForCausalLM": (SIZES, "GPTNeoXForCausalLM"),
    "LlamaForCausalLM": (SIZES, "LlamaForCausalLM"),
    "MistralForCausalLM": (SIZES, "MistralForCausalLM"),
    "MixtralForCausalLM": ({**SIZES, "num_local_experts": 3, "num_key_value_heads": 1}, "MixtralForCausalLM"),
    "ModernBertForMaskedLM": ({**SIZES, "pad_token_id": 1}, "ModernBertModel"),
    "FlaubertWithLMHeadModel": ({"vocab_size": 307, "emb_dim": 12, "n_layers": 2, "n_heads": 2}, "FlaubertModel"),
    "IBertModel": (SIZES, "IBertModel"),
    "FalconForCausalLM": (SIZES, "FalconForCausalLM"),
    "OPTForCausalLM": ({**SIZES, "ffn_dim": 22, "word_embed_proj_dim": 12}, "OPTForCausalLM"),
    "T5ForConditionalGeneration": (T5_SIZES, "T5Model"),
    "BartForConditionalGeneration": (BART_SIZES, "BartModel"),
}


def saved(name, folder, tied=None, **settings):
    """A model of this class with weights of its own, and where it was saved."""
    torch.manual_seed(7)
    sizes = CLASSES[name][0] | ({} if tied is None else {"tie_word_embeddings": tied})
    with quiet_transformers():
        made = getattr(transformers, name)
        model = made(made.config_class(**sizes))
        model.save_pretrained(folder, **settings)
    return model


def load(folder):
    with quiet_transformers() as library:
        return load_model(library, folder)[1]


def change(folder, edit=None, **config):
    """Edit the tensors in a saved model, and settings in its config.json."""
    if edit is not None:
        tensors = load_file(folder / "model.safetensors")
        edit(tensors)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))


@pytest.mark.parametrize("name", CLASSES)
def test_every_weight_of_a_model_is_that_of_the_file(name, tmp_path):
    model = saved(name, tmp_path)
    loaded = load(tmp_path)
    assert type(loaded).__name__ == CLASSES[name][1]
    prefix = f"{model.base_model_prefix}."
    expected = {key.removeprefix(prefix): value for key, value in model.state_dict().items()}
    weights = {key.removeprefix(prefix): value for key, value in loaded.state_dict().items()}
    assert len(weights) > 10
    torch.testing.assert_close(weights, {key: expected[key] for key in weights}, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_shards_and_tied_heads_load(dtype, tmp_path):
    model = saved("GPT2LMHeadModel", tmp_path / "whole").to(dtype)
    with quiet_transformers():
        model.save_pretrained(tmp_path / "shards", max_shard_size="4KB")
    assert (tmp_path / "shards" / "model.safetensors.index.json").is_file()
    loaded = load(tmp_path / "shards")
    torch.testing.assert_close(dict(loaded.named_parameters()), dict(model.named_parameters()), rtol=0, atol=0)
    assert loaded.lm_head.weight is loaded.transformer.wte.weight


OLD_BUFFERS = {
    "transformer.h.0.attn.bias": torch.ones(1, 1, 61, 61, dtype=torch.bool),
    "transformer.h.0.attn.masked_bias": torch.tensor(-1e4),
    "transformer.h.1.attn.rotary_emb.inv_freq": torch.ones(3),
}


def test_buffers_of_old_files_are_passed_over(tmp_path):
    saved("GPT2LMHeadModel", tmp_path)
    change(tmp_path, lambda tensors: tensors.update(OLD_BUFFERS))
    assert load(tmp_path).config.n_layer == 2


def test_names_of_the_first_checkpoints_load(tmp_path):
    model = saved("BertForPreTraining", tmp_path)

    def rename(tensors):
        for name in [name for name in tensors if "LayerNorm" in name]:
            tensors[name.replace("weight", "gamma").replace("bias", "beta")] = tensors.pop(name)

    change(tmp_path, rename)
    loaded, expected = dict(load(tmp_path).named_parameters()), dict(model.bert.named_parameters())
    torch.testing.assert_close(loaded, expected, rtol=0, atol=0)


def test_a_pooler_that_was_not_saved_is_left_out(tmp_path):
    saved("BertForMaskedLM", tmp_path)
    assert load(tmp_path).pooler is None
    saved("BertModel", tmp_path / "whole")
    assert load(tmp_path / "whole").pooler is not None


def renamed(old, new):
    return lambda tensors: tensors.update({new: tensors.pop(old)})


def replaced(name, value):
    return lambda tensors: tensors.update({name: value})


LAYER, BERT_LAYER = "model.layers.1.self_attn.q_proj.weight", "bert.encoder.layer.1.attention.self.key.weight"
EXPERT = "model.layers.1.block_sparse_moe.experts.2.w1.weight"
SCALING = "encoder.layer.1.output.ln_input_act.act_scaling_factor"
DAMAGED = {
    "nothing but a foreign tensor": (
        "LlamaForCausalLM",
        lambda tensors: (tensors.clear(), tensors.update(x=torch.ones(3))),
        r"22 tensors do not fit\.\n  lm_head\.weight is missing; config\.json needs it, \(307, 12\)\n  model",
    ),
    "a missing tensor": ("LlamaForCausalLM", lambda t: t.pop(LAYER), rf"{LAYER} is missing; .* needs it, \(12, 12\)"),
    "a renamed tensor": ("LlamaForCausalLM", renamed(LAYER, "model.layers.1.self_attn.Q.weight"), "2 tensors do not"),
    "a foreign tensor": ("GPT2LMHeadModel", replaced("x", torch.ones(3)), r"x is not part of the GPT2LMHeadModel"),
    "a bias that the model does not add": (
        "LlamaForCausalLM",
        replaced("model.layers.1.self_attn.q_proj.bias", torch.ones(12)),
        r"q_proj\.bias is not part of the LlamaForCausalLM of config\.json",
    ),
    "another layer": (
        "BertForMaskedLM",
        replaced("bert.encoder.layer.2.attention.self.key.weight", torch.ones(12, 12)),
        r"layer\.2\.attention\.self\.key\.weight is not part of the BertModel",
    ),
    "another shape": ("BertForMaskedLM", replaced(BERT_LAYER, torch.ones(12, 11)), r"is \(12, 11\); .* \(12, 12\)"),
    "whole numbers": (
        "BertForMaskedLM",
        replaced(BERT_LAYER, torch.ones(12, 12, dtype=torch.int32)),
        r"key\.weight is int32; weights are float64, float32",
    ),
    "whole numbers where weights are joined": (
        "MixtralForCausalLM",
        lambda t: t.update({EXPERT: t[EXPERT].to(torch.int32)}),
        rf"{re.escape(EXPERT)} is int32; weights are float64, float32",
    ),
    "a missing expert": ("MixtralForCausalLM", lambda t: t.pop(EXPERT), r"experts\.gate_up_proj"),
    "a NaN in a buffer that takes part": ("IBertModel", replaced(SCALING, torch.full((1,), torch.nan)), "holds NaN or"),
    "a NaN": ("BertForMaskedLM", lambda t: t[BERT_LAYER][3, 5].fill_(torch.nan), r"key\.weight holds NaN or infinite"),
    "an infinity": ("T5ForConditionalGeneration", lambda t: t["shared.weight"][5].fill_(-torch.inf), "NaN or infinite"),
    "the same twice": (
        "GPT2LMHeadModel",
        lambda t: t.update({"wpe.weight": t["transformer.wpe.weight"] + 1}),
        r"wpe\.weight and (transformer\.)?wpe\.weight are one and the same tensor",
    ),
    "a tied head that differs": (
        "GPT2LMHeadModel",
        lambda t: t.update({"lm_head.weight": t["transformer.wte.weight"] + 1}),
        r"wte\.weight and lm_head\.weight differ, but config\.json says that they are one tensor",
    ),
    "a bias with the name of a buffer": (
        "LlamaForCausalLM",
        replaced("model.layers.0.attn.bias", torch.ones(12)),
        r"layers\.0\.attn\.bias is not part of the LlamaForCausalLM",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_checkpoint_that_does_not_fit_is_an_error_with_names(name, tmp_path, capfd):
    kind, edit, message = DAMAGED[name]
    saved(kind, tmp_path, tied=True if kind == "GPT2LMHeadModel" else None)
    change(tmp_path, edit)
    capfd.readouterr()
    with pytest.raises(ValueError, match=message) as error:
        load(tmp_path)
    assert str(error.value).endswith("Nothing was loaded.")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("LlamaForCausalLM", {"num_hidden_layers": 200_000}, r"200000 layers cannot be made of the 21 tensors"),
        ("LlamaForCausalLM", {"num_hidden_layers": 1}, r"9 tensors do not fit\.\n  model\.layers\.1\..* is not part"),
        ("LlamaForCausalLM", {"num_hidden_layers": 3}, r"9 tensors do not fit\.\n  model\.layers\.2\..* is missing"),
        ("BartForConditionalGeneration", {"decoder_layers": 2**31 - 1}, r"\(decoder_layers\); the two do not belong"),
        ("BertForMaskedLM", {"num_labels": 10**9}, r"num_labels is 1000000000; it must be at most 100,000"),
        (
            "BertForMaskedLM",
            {"vocab_size": 2**31 - 1},
            r"config\.json needs more than the 42 tensors .* such as weight",
        ),
        ("MixtralForCausalLM", {"num_local_experts": 10**9}, r"config\.json needs more than the 35 tensors"),
        ("GPT2LMHeadModel", {"vocab_size": 311}, r"wte\.weight is \(307, 12\); config\.json needs \(311, 12\)"),
        ("GPT2LMHeadModel", {"model_type": "nosuch"}, r"model_type is 'nosuch', which this version of transformers"),
        ("GPT2LMHeadModel", {"model_type": None}, r"model_type is None, which this version of transformers does"),
        (
            "ElectraForPreTraining",
            {"architectures": ["ViTForCausalLM"], "model_type": "vit"},
            "transformers has no ViT",
        ),
    ],
)
def test_a_config_that_does_not_fit_is_refused_before_it_takes_time(name, config, message, tmp_path):
    saved(name, tmp_path)
    change(tmp_path, **config)
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


def test_settings_that_choose_other_files_or_code_change_nothing(tmp_path):
    model = saved("GPT2LMHeadModel", tmp_path)
    elsewhere = {"transformers_weights": "../x.safetensors", "configuration_files": ["config.4.0.0.json"]}
    code = {"auto_map": {"AutoModel": "x.X"}, "attn_implementation": "somebody/kernel", "fusion_config": {"x": True}}
    change(tmp_path, **elsewhere, **code)
    (tmp_path / "config.4.0.0.json").write_text('{"model_type": "gpt2", "n_layer": 1}')
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "elsewhere"}')
    loaded = load(tmp_path)
    torch.testing.assert_close(dict(loaded.named_parameters()), dict(model.named_parameters()), rtol=0, atol=0)


@pytest.mark.parametrize("file", ["config.json", "generation_config.json", "special_tokens_map.json"])
def test_a_json_file_of_ten_gigabytes_is_not_read(file, tmp_path):
    saved("GPT2LMHeadModel", tmp_path)
    (tmp_path / file).touch()
    os.truncate(tmp_path / file, 10 << 30)
    with pytest.raises(ValueError, match=rf"{file}: the file has 10,737,418,240 bytes, more than the"):
        check_files(tmp_path)


def test_an_index_leads_nowhere_else(tmp_path):
    model = saved("GPT2LMHeadModel", tmp_path / "model", max_shard_size="4KB")
    torch.testing.assert_close(dict(load(tmp_path / "model").named_parameters()), dict(model.named_parameters()))
    index = tmp_path / "model" / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    first = next(iter(content["weight_map"].values()))
    (tmp_path / "model" / first).rename(tmp_path / first)
    index.write_text(index.read_text().replace(first, f"../{first}"))
    with pytest.raises(ValueError, match=rf"\.\./{first} is no plain name of a \.safetensors file"):
        load(tmp_path / "model")


@pytest.mark.parametrize("other", ["../tokenizer.5.0.json", "/tokenizer.json", 5])
def test_a_tokenizer_is_read_from_its_own_directory(other, tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"fast_tokenizer_files": [other]}))
    with pytest.raises(ValueError, match=r"tokenizer_config\.json: .* is no plain name of a tokenizer\.json"):
        check_files(tmp_path)


TOKEN = {"content": "<x>", "lstrip": False}


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer_config.json", {"added_tokens_decoder": {"0": {**TOKEN, "\x1b[2J": True}}}),
        ("tokenizer_config.json", {"extra_special_tokens": [{**TOKEN, "\x1b[2J": True}]}),
        ("special_tokens_map.json", {"bos_token": {**TOKEN, "\x1b[2J": True}}),
    ],
)
def test_a_field_that_tokenizers_would_print_is_refused(file, content, tmp_path):
    (tmp_path / file).write_text(json.dumps(content).replace(', "\\u001b[2J": true', ""))
    check_files(tmp_path)
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"a field of an added token is '\\x1b\[2J'; these are known: id, content"):
        check_files(tmp_path)


def test_a_vocabulary_of_lists_is_refused_before_transformers_reads_it(tmp_path):
    (tmp_path / "vocab.json").write_text("[[" * 300_000 + "]]" * 300_000)
    with pytest.raises(ValueError, match=r"vocab\.json is no tokenizer that can be read: it has too many values"):
        check_files(tmp_path)


@pytest.mark.parametrize("name", ["vocab.txt", "merges.txt"])
def test_a_text_file_of_nothing_but_lines_is_not_read(name, tmp_path):
    (tmp_path / name).write_text("a\n" * 280_000)  # 250,000 and one for each 16 bytes are read
    check_files(tmp_path)
    (tmp_path / name).write_text("a\n" * 300_000)
    with pytest.raises(ValueError, match=rf"{name} has 300,000 lines in 600,000 bytes, more than the 287,500 that"):
        check_files(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        {"additional_special_tokens": [str(i) for i in range(25_001)]},
        {"extra_special_tokens": {str(i): str(i) for i in range(25_001)}},
        {"pad_token": "a" * 500_001},
        {"added_tokens_decoder": {str(i): {"content": "a" * 9000} for i in range(60)}},
    ],
)
def test_more_special_tokens_than_any_tokenizer_has_are_refused(content, tmp_path):
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({"chat_template": "a" * 600_000, "pad_token": "a"}))
    check_files(tmp_path)
    path.write_text(json.dumps(content))
    with pytest.raises(
        ValueError, match=r"_config\.json has [\d,]+ tokens or settings of [\d,]+ characters; at most 25,"
    ):
        check_files(tmp_path)


def test_a_command_refuses_what_generate_refuses(tmp_path):
    GPT.from_pretrained("tiny").save_pretrained(tmp_path)
    change(tmp_path, lambda tensors: tensors.pop("transformer.h.3.ln_1.weight"))
    with pytest.raises(ValueError, match=r"h\.3\.ln_1\.weight is missing"):
        GPT.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"h\.3\.ln_1\.weight is missing"):
        load_reader(str(tmp_path), "cpu")
