"""Mechanisms: other ways to attend than the formula, known by what the code says of itself and by the calls that run.

Code that says what it is, and is not the formula, is not wrong: it is not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from regard.mistakes.mistake import Mistake
from regard.school.check.compare.call_forms import call_forms
from regard.school.check.compare.experiment import Attempt
from regard.school.check.learner_code.protocol import Observation
from regard.school.check.learner_code.text_hints import stated, with_header

# What names, docstrings and comments say, and what it is then called.
_SAID = {
    r"bahdanau|additive[ _]?attention": "additive attention",
    r"luong": "Luong's attention",
    r"linear_?attention|linear attention|transformers are rnns|elu feature|efficient_?attention": "linear attention",
    r"gated_?attention|gated attention|\bGAU\b": "gated attention",
    r"pooling|attenti\w*_?pool|\bMIL\b": "attention pooling",
    r"squeeze.{0,5}excit|channel_?attention|channel attention|spatial_?attention|CBAM|\bSE_?(Layer|Block)": ""
    "channel attention",
    r"^\w*(feed_?forward|ffn|mlp|mixer)": "feed-forward",  # the name, which stands first
    r"retention|ret_?net": "retention",
    r"attention[- _]free|(?-i:\bAFT)": "attention-free mixing",
    r"rwkv|time_?mix": "RWKV time mixing",
    r"\bfnet|fourier": "Fourier mixing",
    r"graph_?attention|\bGAT\b|GAT_?(layer|conv)": "graph attention",
    r"sigmoid_?attention|sigmoid attention|sigmoid (instead of|for) (the )?softmax": "sigmoid attention",
    r"slot_?attention": "slot attention",
    r"diff_?(attention|transformer)|differential": "differential attention",
    r"linformer": "low-rank attention",
    r"performer|random_?features?|FAVOR": "random-feature attention",
    r"synthesizer": "a synthesizer",
    r"hopfield": "a Hopfield layer",
    r"nystr|cosformer|reformer|hyena|mamba|\bS4\b|state space": "another mixing of tokens",
    r"(?-i:LSTM|GRU|RNN)": "a recurrent layer",
    r"rotary_?embedding|rope_?embedding|positional_?encoding": "positions alone",
    r"talking[- _]?heads?": "talking heads",
}
_OF_ONE_QUERY = r"(?i)class[ _-]tok|\bcls\b|\bcls_|_cls\b|\bpool"
# Names of queries and keys.
_COMPARED = (
    r"(?i)quer|\bkeys?\b|\b[qk]s?\b|\b[qk]_|_[qk]\b|w[qk]\b|qkv|\bkv|consult|anfrag|abfrag|frage|requ[eê]te|clave|"
    r"chave|schl|cl[eé]s?\b|chia|zapros|kluc|domand|vraag|sleutel"
)
_COMPARES = ("softmax", "exp", "scaled_dot_product_attention", "flex_attention", "multi_head_attention_forward")
_PRODUCTS = ("matmul", "bmm", "einsum", "baddbmm", "rmatmul", "mm", "sum", "dot", "tensordot", "vecdot")


def other_mechanism(source: str, name: str, observation: Observation) -> str:
    """What a layer is that differs from the formula without a known mistake; "" where nothing says that it is meant.

    >>> other_mechanism("class BahdanauAttention: ...", "BahdanauAttention", Observation())
    'additive attention'
    """
    text = stated(source, name)
    for pattern, phrase in _SAID.items():
        if re.search(pattern, text, re.IGNORECASE):
            return phrase
    calls = [call.name for call in observation.forward]
    if calls[:1] == ["embedding"]:
        return "a whole model, from token ids"
    if (
        observation.contents.get("parameters")
        and calls
        and not any(one in calls for one in _COMPARES)
        and not any(one in calls for one in _PRODUCTS)
    ):
        return "it compares no queries with keys"
    return ""


def without_comparison(attempt: Attempt) -> str:
    """What code is that could not be compared, and that no attention of queries and keys over all tokens need be.

    It gives one vector for a text and says so, or it names neither queries nor keys. "" where it is none of these.
    """
    text, failed, sizes = attempt.text, attempt.failed, attempt.sizes
    if failed is None:
        return ""
    code = "\n".join(line.partition("#")[0] for line in re.sub(r'"""[\s\S]*?"""', "", text).splitlines())
    is_one = re.match(rf"It returns \({sizes.B}, (1, )?\d+\)", failed.message) is not None
    is_one = is_one and not _compares_all(attempt)
    if is_one and re.search(_OF_ONE_QUERY, text):
        return "one query for a text"
    if re.search(_COMPARED, code):
        return ""
    return "pooling of a text" if is_one else "additive attention" if "tanh(" in code else ""


def _compares_all(attempt: Attempt) -> bool:
    """Is there a softmax for every token over all tokens, of which only a part is returned?"""
    way = next(call_forms(attempt.subject.described, [], attempt.recipe.layouts, attempt.recipe.choices[0]))
    seen = attempt.subject.run(attempt.job(calls=[way.as_json()], record=True), attempt.tensors)
    T = attempt.sizes.T
    return any(T in call.value.shape[-2:-1] and T in call.value.shape[-1:] for call in seen.forward)


def announced(variant: Iterable[Mistake], source: str, name: str) -> str:
    """The words by which code says that what would be a mistake is meant; "" where it says no such thing."""
    text = with_header(source, stated(source, name))
    matches = [re.search(one.announced, text) for one in variant if one.announced]
    return next((match[0].strip() for match in matches if match), "")
