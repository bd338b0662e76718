"""The public names: everything that is `regard.NAME`."""

from regard import ladder
from regard.adoption.adopt import adopt
from regard.attention.attend import attend
from regard.attention.cache import Cache
from regard.attention.explain import explain
from regard.attention.formula import attend_in_steps
from regard.attention.layer import MultiHeadAttention
from regard.attention.masks import Mask, causal, dense, documents, padding, window
from regard.attention.positions import Rotary, Stretch, alibi_slopes, sinusoidal
from regard.attention.presets import (
    GPT2_CONFIGS,
    GPT3_CONFIG,
    count_parameters,
    create_gpt2_large_attention,
    create_gpt2_medium_attention,
    create_gpt2_small_attention,
    create_gpt2_xl_attention,
    create_gpt3_attention,
)
from regard.gpt import GPT, GPTConfig
from regard.gpt.tokenizer.tokenizer import Tokenizer
from regard.heads.atlas.collect import atlas
from regard.heads.atlas.result import Atlas, load_atlas
from regard.heads.change.cut import cut
from regard.heads.change.effect import Effects, effect, load_effects
from regard.heads.change.routes import routes
from regard.heads.probe import probe
from regard.heads.watch import Seen, load_seen, watch
from regard.school.check.check import check
from regard.school.check.verdict import Verdict
from regard.steps import step
from regard.traces.trace import Trace, trace

__all__ = [
    "GPT",
    "GPT2_CONFIGS",
    "GPT3_CONFIG",
    "Atlas",
    "Cache",
    "Effects",
    "GPTConfig",
    "Mask",
    "MultiHeadAttention",
    "Rotary",
    "Seen",
    "Stretch",
    "Tokenizer",
    "Trace",
    "Verdict",
    "adopt",
    "alibi_slopes",
    "atlas",
    "attend",
    "attend_in_steps",
    "causal",
    "check",
    "count_parameters",
    "create_gpt2_large_attention",
    "create_gpt2_medium_attention",
    "create_gpt2_small_attention",
    "create_gpt2_xl_attention",
    "create_gpt3_attention",
    "cut",
    "dense",
    "documents",
    "effect",
    "explain",
    "ladder",
    "load_atlas",
    "load_effects",
    "load_seen",
    "padding",
    "probe",
    "routes",
    "sinusoidal",
    "step",
    "trace",
    "watch",
    "window",
]
