"""The classes of the zoo: each model of transformers at a tiny size, with random weights, and what it is called with.

A name is the model_type of its config. Sizes are made small by the names of a config's fields, also in inner configs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY, TEXTS, TOKENS, TARGETS, IMAGE, PATCH = 97, 2, 11, 7, 16, 4

TINY: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size", "embed_dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers", "depth", "num_encoder_attention_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "num_encoder_attention_heads", "num_decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim"), 48),
    **dict.fromkeys(("n_inner", "ffn_hidden_size", "ffn_size", "d_inner", "mlp_dim", "moe_intermediate_size"), 48),
    **dict.fromkeys(("shared_expert_intermediate_size", "feedforward_dim", "intermediate_size_mlp"), 48),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "attention_head_size", "d_head"), 8),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_source_positions"), 64),
    **dict.fromkeys(("max_target_positions", "max_encoder_position_embeddings"), 64),
    **dict.fromkeys(("vocab_size", "n_words", "vocab_size_per_layer_input"), VOCABULARY),
    **dict.fromkeys(
        ("hidden_dropout", "hidden_dropout_prob", "attention_dropout", "dropout", "attention_probs_dropout_prob"), 0.0
    ),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_top_k", "num_selected_experts"), 2),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    **dict.fromkeys(("projection_dim", "out_hidden_size"), 16),
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 1),
    "image_size": IMAGE,
    "patch_size": PATCH,
    "num_channels": 3,
    "sliding_window": 5,
    "type_vocab_size": 2,
    "first_k_dense_replace": 0,
    "encoder_layerdrop": 0.0,
    "layerdrop": 0.0,
}


def shrink(config: Any, sizes: dict[str, Any] | None = None) -> Any:
    """Make every known size of a config tiny; `sizes` come first."""
    own = {**TINY, **(sizes or {})}
    for name in list(vars(config)):
        inner = getattr(config, name)
        if hasattr(inner, "to_dict") and name != "quantization_config":
            shrink(inner, sizes)
        elif name in own and (type(inner) in (int, float) or name in (sizes or {})):
            setattr(config, name, own[name])
    for name in ("layer_types", "attn_layers", "mlp_layer_types", "attention_layers", "no_rope_layers"):
        value = getattr(config, name, None)
        if isinstance(value, (list, tuple)) and len(value) > 2 and name not in (sizes or {}):
            setattr(config, name, type(value)(value[:2]))
    return config


def ids(length: int = TOKENS, seed: int = 3) -> Tensor:
    """Token ids in which some occur twice; none is a special one."""
    return torch.randint(5, 23, (TEXTS, length), generator=torch.Generator().manual_seed(seed))


def padded(length: int = TOKENS) -> Tensor:
    """The second text is padded on the right."""
    mask = torch.ones(TEXTS, length, dtype=torch.long)
    mask[1, -3:] = 0
    return mask


@dataclass(frozen=True)
class Stack:
    """The layers of one field of the model's output, such as "attentions": what their queries and keys are."""

    field: str
    queries: str = ""  # the name of the argument with the token ids of the queries; "" where there are none
    across: bool = False
    layout: str = "BHTS"  # the axes of its tensors; n are blocks or windows, N texts, windows and heads together
    heads: int = 0  # of N
    has_positions: bool = True  # does each query stand at a key?
    of_scores: bool = False  # its tensors are scores, before the softmax
    with_image: bool = False  # the patches of an image follow the text


@dataclass(frozen=True)
class Animal:
    """One class of the zoo."""

    name: str
    inputs: Callable[[bool], dict[str, Tensor]]  # the arguments, padded or not
    stacks: tuple[Stack, ...] = (Stack("attentions", "input_ids"),)
    sizes: dict[str, Any] = field(default_factory=dict)
    can_pad: bool = True
    more: dict[str, Any] = field(default_factory=dict)  # further arguments of the config
    partial: bool = False  # the model's output has only some of its layers
    refused: tuple[str, ...] = ()  # fields of its output whose layers are not reported
    double: bool = True  # can it run in float64?
    eager_only: bool = False  # its backbone has no SDPA
    spread: float = 1.0  # how large its random weights are

    def model(self, implementation: str) -> nn.Module:
        import transformers

        config = shrink(transformers.AutoConfig.for_model(self.name.split()[0], **self.more), self.sizes)
        torch.manual_seed(7)
        config._experts_implementation = "eager"
        model = transformers.AutoModel.from_config(config, attn_implementation=implementation)
        with torch.no_grad():  # so that heads differ, and look at something
            for name, parameter in model.named_parameters():
                if parameter.dim() > 1 and "norm" not in name.lower():
                    parameter.normal_(0, self.spread * parameter.shape[-1] ** -0.5 if "embed" not in name else 1.0)
                elif "sink" in name:
                    parameter.normal_(0, 1.0)
        return model.eval()

    def has(self, implementation: str) -> bool:
        """Does transformers have this implementation for the class?"""
        import transformers

        if self.eager_only:
            return implementation == "eager"
        config = transformers.AutoConfig.for_model(self.name.split()[0], **self.more)
        kind = transformers.AutoModel._model_mapping[type(config)]
        return implementation == "eager" or bool(getattr(kind, f"_supports_{implementation}", False))


def text(padding: bool) -> dict[str, Tensor]:
    arguments = {"input_ids": ids()}
    return arguments | {"attention_mask": padded()} if padding else arguments


def two_texts(padding: bool) -> dict[str, Tensor]:
    return text(padding) | {"decoder_input_ids": ids(TARGETS, seed=4)}


def image(padding: bool) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(TEXTS, 3, IMAGE, IMAGE, generator=torch.Generator().manual_seed(5))}


def text_and_image(padding: bool) -> dict[str, Tensor]:
    return text(padding) | image(padding)


def sound(padding: bool) -> dict[str, Tensor]:
    return {"input_values": torch.randn(TEXTS, 1600, generator=torch.Generator().manual_seed(5))}


BOTH = (
    Stack("encoder_attentions", "input_ids"),
    Stack("decoder_attentions", "decoder_input_ids"),
    Stack("cross_attentions", "decoder_input_ids", across=True),
)

DECODERS = (
    "gpt2 gpt_neo gpt_neox opt bloom llama mistral mixtral qwen2 qwen3 qwen2_moe qwen3_moe phi phi3 gemma gemma2 "
    "gemma3_text falcon stablelm starcoder2 olmo olmo2 olmoe cohere cohere2 granite mpt persimmon gpt_bigcode biogpt "
    "gpt_oss glm glm4 smollm3 ernie4_5 jetmoe exaone4 helium openai-gpt ctrl xlnet imagegpt bitnet phimoe seed_oss "
    "arcee apertus granitemoe gpt_neox_japanese olmo3 lfm2"
)
ENCODERS = (
    "bert roberta distilbert albert electra camembert deberta deberta-v2 mpnet xlm flaubert roformer layoutlm "
    "convbert modernbert megatron-bert ibert splinter ernie data2vec-text nomic_bert eurobert luke "
    "roberta-prelayernorm bert-generation nystromformer xlm-roberta roc_bert"
)
WITH_DECODERS = (
    "t5 mt5 umt5 bart mbart pegasus marian blenderbot blenderbot-small m2m_100 switch_transformers plbart fsmt"
)
IMAGES = "vit deit beit dinov2 dinov3_vit dpt data2vec-vision"
BLOCKS = {"block_size": 2, "num_random_blocks": 1, "attention_type": "block_sparse"}
LONG = 31  # tokens, for attention in blocks
STAGES = {"num_heads": [2, 4], "depths": [2, 2], "embed_dim": 16, "window_size": 2, "patch_size": 2}
PYRAMID = {
    "num_encoder_blocks": 2,
    "hidden_sizes": [16, 32],
    "num_attention_heads": [2, 4],
    "depths": [1, 1],
    "patch_sizes": [3, 3],
    "strides": [2, 2],
    "sr_ratios": [2, 1],
    "mlp_ratios": [2, 2],
}
HIERARCHY = {
    "image_size": [32, 32],
    "embed_dim": 16,
    "depths": [1, 2],
    "num_heads": [2, 4],
    "masked_unit_size": [4, 4],
    "query_stride": [2, 2],
    "num_query_pool": 1,
    "hidden_size": 32,
}
CONVOLUTIONS = {
    "conv_dim": (32, 32),
    "conv_stride": (20, 4),
    "conv_kernel": (5, 4),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}
LATENTS = {
    "d_latents": 32,
    "num_latents": 5,
    "num_self_attends_per_block": 2,
    "num_blocks": 1,
    "num_self_attention_heads": 4,
    "num_cross_attention_heads": 4,
}
PATCHES = (Stack("attentions"),)
RT_DETR = {
    "encoder_hidden_dim": 32,
    "encoder_in_channels": [8, 16, 16],
    "decoder_in_channels": [32, 32, 32],
    "encoder_attention_heads": 4,
    "num_denoising": 0,
}


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


def long_text(padding: bool) -> dict[str, Tensor]:
    arguments = {"input_ids": ids(LONG)}
    return arguments | {"attention_mask": padded(LONG)} if padding else arguments


def long_text_and_text(padding: bool) -> dict[str, Tensor]:
    return long_text(padding) | {"decoder_input_ids": ids(TARGETS, seed=4)}


def text_with_global_attention(padding: bool) -> dict[str, Tensor]:
    chosen = torch.zeros(TEXTS, LONG, dtype=torch.long)
    chosen[0, 0] = chosen[1, 0] = chosen[1, 4] = 1
    return long_text(padding) | {"global_attention_mask": chosen}


def of_images(name: str, **options: Any) -> Animal:
    return Animal(name, **({"inputs": image, "stacks": PATCHES, "can_pad": False} | options))


def text_and_entities(padding: bool) -> dict[str, Tensor]:
    entities = {"entity_ids": ids(3), "entity_attention_mask": torch.ones(TEXTS, 3, dtype=torch.long)}
    return text(padding) | entities | {"entity_position_ids": torch.zeros(TEXTS, 3, 4, dtype=torch.long)}


def large_image(padding: bool) -> dict[str, Tensor]:
    return {"pixel_values": random(TEXTS, 3, 64, 64)}


def detector(name: str, kind: str, **options: Any) -> Animal:
    """Objects are found by attention to a few places of the image that each query chooses, which is not reported."""
    stages = {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "embedding_size": 8, "layer_type": "basic"}
    config = {"model_type": kind, "out_features": ["stage2", "stage3", "stage4"], **stages}
    return of_images(
        name,
        inputs=large_image,
        stacks=(Stack("decoder_attentions"), Stack("cross_attentions", across=True)),
        sizes={"num_queries": 7, "embedding_size": 8},
        more={"backbone_config": config, **options},
        partial=True,
        refused=("cross_attentions",),
        eager_only=True,
        spread=0.3,
    )


def video(frames: int) -> Callable[[bool], dict[str, Tensor]]:
    return lambda padding: {"pixel_values": random(TEXTS, frames, 3, IMAGE, IMAGE)}


ANIMALS = (
    *(Animal(name, text) for name in DECODERS.split()),
    *(Animal(name, text, more={"rotary_dim": 4}) for name in ("gptj", "codegen")),
    Animal("xglm", text, double=False),
    Animal("diffllama", text, partial=True),  # calls attention twice with the same queries and keys
    Animal(
        "deepseek_v2", text, sizes={"num_key_value_heads": 4}, more={"topk_method": "greedy", "num_experts_per_tok": 2}
    ),
    Animal("deepseek_v3", text, sizes={"num_key_value_heads": 4}),
    *(Animal(name, text) for name in ENCODERS.split()),
    Animal(
        "luke with entities",
        text_and_entities,
        (Stack("attentions", with_image=True, has_positions=False),),
        more={"entity_vocab_size": 29, "entity_emb_size": 16},
    ),
    Animal(
        "nystromformer with landmarks",
        lambda padding: {"input_ids": ids(12)},
        more={"num_landmarks": 4, "segment_means_seq_len": 12},
        can_pad=False,
        refused=("attentions",),
    ),
    Animal("squeezebert", text, (Stack("attentions", "input_ids", of_scores=True),)),
    Animal("markuplm", text),  # its mask is −10,000
    Animal("xlm-roberta-xl", text),
    Animal("tapas", lambda padding: text(padding) | {"token_type_ids": torch.zeros(TEXTS, TOKENS, 7).long()}),
    Animal(
        "patchtst",
        lambda padding: {"past_values": random(TEXTS, 32, 3)},
        PATCHES,
        {"context_length": 32, "patch_length": 4, "patch_stride": 4, "num_input_channels": 3},
        can_pad=False,
    ),
    Animal("rembert", text, spread=0.3),  # more, and weights are 0 in float64, too
    Animal("mobilebert", text, spread=0.3),
    Animal("canine", text, double=False),
    Animal("longformer", long_text, sizes={"attention_window": [4, 4]}, refused=("attentions",)),
    Animal(
        "longformer with global attention",
        text_with_global_attention,
        sizes={"attention_window": [4, 4]},
        refused=("attentions",),
    ),
    Animal("big_bird", long_text, more=BLOCKS, refused=("attentions",)),
    Animal("yoso", text, refused=("attentions",)),
    *(Animal(name, two_texts, BOTH) for name in WITH_DECODERS.split()),
    Animal(
        "prophetnet",
        two_texts,
        (
            Stack("encoder_attentions", "input_ids", of_scores=True),
            Stack("decoder_attentions", "decoder_input_ids"),
            Stack("decoder_ngram_attentions", layout="BnHTS", has_positions=False),
            Stack("cross_attentions", "decoder_input_ids", across=True, of_scores=True),
        ),
        can_pad=False,  # the scores in its output are those before its mask
    ),
    Animal("bigbird_pegasus", long_text_and_text, BOTH, more=BLOCKS, refused=("encoder_attentions",)),
    Animal(
        "longt5",
        long_text_and_text,
        (Stack("encoder_attentions", "input_ids", layout="BnHTS", has_positions=False), *BOTH[1:]),
        sizes={"local_radius": 4},
    ),
    *(of_images(name) for name in IMAGES.split()),
    of_images("yolos", sizes={"image_size": [IMAGE, IMAGE], "num_detection_tokens": 3}),
    *(of_images(name, sizes=STAGES, partial=True) for name in ("swin", "swinv2", "donut-swin")),
    of_images("segformer", sizes=PYRAMID, stacks=(Stack("attentions", has_positions=False),)),
    of_images(
        "hiera",
        sizes=HIERARCHY,
        inputs=lambda padding: {"pixel_values": random(TEXTS, 3, 32, 32)},
        stacks=(Stack("attentions", layout="BHnTS"),),
        partial=True,
    ),
    of_images(
        "hiera with one head",  # in its first stage, as in all of its published sizes
        sizes=HIERARCHY | {"embed_dim": 8, "num_heads": [1, 2], "hidden_size": 16},
        inputs=lambda padding: {"pixel_values": random(TEXTS, 3, 32, 32)},
        stacks=(Stack("attentions", layout="BHnTS"),),
        partial=True,
    ),
    detector("deformable_detr", "resnet", use_timm_backbone=False, use_pretrained_backbone=False, backbone=None),
    detector("rt_detr", "rt_detr_resnet", **RT_DETR),
    of_images(
        "sam_vision_model",
        sizes={"patch_size": 2, "window_size": 4, "global_attn_indexes": [1], "output_channels": 16},
        stacks=(Stack("attentions", layout="NTS", heads=4),),
    ),
    of_images("timesformer", sizes={"num_frames": 3}, inputs=video(3), partial=True),
    of_images("vivit", sizes={"num_frames": 4, "tubelet_size": [2, 4, 4]}, inputs=video(4)),
    of_images("videomae", sizes={"num_frames": 4, "tubelet_size": 2}, inputs=video(4)),
    Animal("vilt", text_and_image, (Stack("attentions", with_image=True),)),
    Animal("llava", text),
    *(
        Animal(
            name,
            text_and_image,
            (Stack("text_model_output.attentions", "input_ids"), Stack("vision_model_output.attentions")),
            more={"text_config": {"projection_size": 32}} if name == "siglip" else {},
            partial=name == "siglip",  # its pooling layer is not in the output
        )
        for name in ("clip", "siglip")
    ),
    *(Animal(name, sound, PATCHES, can_pad=False, sizes=CONVOLUTIONS) for name in ("wav2vec2", "hubert")),
    Animal(
        "whisper",
        lambda padding: {"input_features": random(TEXTS, 80, 22), "decoder_input_ids": ids(TARGETS)},
        (Stack("encoder_attentions"), *BOTH[1:]),
        can_pad=False,
        sizes={"max_source_positions": 11},
    ),
    Animal(
        "perceiver",
        lambda padding: {"inputs": random(TEXTS, TOKENS, 32)},
        (Stack("attentions"), Stack("cross_attentions", across=True)),
        can_pad=False,
        sizes=LATENTS,
    ),
)
