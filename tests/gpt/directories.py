"""Small models of transformers and of ours, and ways to spoil the directories they are saved in."""

import json
import os

import torch
from safetensors.torch import load_file, save_file

from regard import GPT, GPTConfig
from regard.gpt.checkpoint.stored_tensors import INDEX, SINGLE

GPT2 = {"vocab_size": 97, "n_positions": 23, "n_embd": 21, "n_layer": 2, "n_head": 3, "eos_token_id": 96}
LLAMA = {
    "vocab_size": 97,
    "max_position_embeddings": 23,
    "hidden_size": 60,
    "intermediate_size": 37,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 11,
}
KINDS = {
    "gpt2": ("gpt2", {**GPT2, "bos_token_id": 96}),
    "gpt2, untied, another width inside": ("gpt2", {**GPT2, "bos_token_id": 96, "n_inner": 29,
        "tie_word_embeddings": False}),
    "llama": ("llama", {**LLAMA, "rms_norm_eps": 1e-5}),
    "llama, tied": ("llama", {**LLAMA, "tie_word_embeddings": True}),
    "llama 3": ("llama", {**LLAMA, "rope_parameters": LLAMA3}),
    "llama, linear": ("llama", {**LLAMA, "rope_parameters": {"rope_type": "linear", "rope_theta": 500.0,
        "factor": 3.0}}),
    "llama, with biases": ("llama", {**LLAMA, "attention_bias": True, "mlp_bias": True}),
    "mistral": ("mistral", {**LLAMA, "sliding_window": 5}),
    "mistral without a window": ("mistral", {**LLAMA, "sliding_window": None}),
    "qwen2": ("qwen2", LLAMA),
    "qwen2 with a window": ("qwen2", {**LLAMA, "use_sliding_window": True, "sliding_window": 5,
        "max_window_layers": 0}),
    "qwen3": ("qwen3", {**LLAMA, "head_dim": 10, "tie_word_embeddings": True}),
}  # fmt: skip


def theirs(name):
    """A tiny model of transformers', with weights large enough that every one of them matters."""
    kind, told = KINDS[name]
    import transformers

    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **told)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def logits(model, ids):
    with torch.no_grad():
        found = model(ids)
    return found if isinstance(model, GPT) else found.logits


def ours(**changes):
    return GPT(GPTConfig(97, 23, 2, 21, 3, **changes))


def rewrite(directory, change):
    """Change the tensors of model.safetensors, by a function of the dict."""
    tensors = {name: t.clone() for name, t in load_file(directory / SINGLE).items()}
    change(tensors)
    save_file(tensors, directory / SINGLE)


def snapshot(directory):
    return {name: (directory / name).read_bytes() for name in os.listdir(directory)}


IDS = torch.randint(97, (2, 19), generator=torch.Generator().manual_seed(5))


def change_index(directory, change):
    told = json.loads((directory / INDEX).read_text())
    change(told["weight_map"])
    (directory / INDEX).write_text(json.dumps(told))
