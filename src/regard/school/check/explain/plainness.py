"""Plainness: is a layer nothing but the formula, so that another result can only be a mistake?

A layer is plain if all its weights are the projections, and nothing in its code speaks of anything else that attention
may have. What a plain layer computes otherwise is wrong. Of any other layer nobody can say that without knowing what is
meant: then it is not checked.
"""

from __future__ import annotations

import re

from regard.school.check.compare.call_forms import MASK, options_of
from regard.school.check.compare.constructor_arguments import ROLES, Setting, guess_role, has_config, settings_of
from regard.school.check.compare.experiment import Attempt, Experiment
from regard.school.check.learner_code.subject import is_function
from regard.school.check.learner_code.text_hints import attention_roles
from regard.school.check.verdict import Finding
from regard.support import vocabulary as words

SCALE = "a learned or chosen scale"
# What attention may have beside the formula, and how code speaks of it. A comment is not enough.
_EXTRAS = {
    "positions": r"rotary|\brope|_rope|rotate_half|freqs?_?cis|alibi|slopes?\b|rel(ative)?_?(pos|bias|att|key|emb)|"
    r"pos(ition)?(al)?_?(bias|emb|enc|ids?)|distance|bias_table|bucket",
    "a pattern of visible tokens": r"window|sliding|\blocal_|\bband|stride|sparse|dilat|adjacen|graph|neighbou?r|"
    r"\bdoc(ument)?_|segment|prefix",
    "a norm": r"(layer|rms|group|batch)_?norm|norm_|_norm\b|\bnorm\d?\b",
    SCALE: r"temperature|\btau\b|logit_scale|softmax_scale|sharpness|\bcap\b|softcap|soft_cap|mup\b",
    "keys or values of its own": r"\bmem(ory)?_?(k|v|kv|key|slots?|tokens?)\b|\bsinks?\b|null_|persistent|registers\b|"
    r"bias_[kv]\b|latents?|prompt|cls_token",
    "heads that are mixed": r"talking|head_?mix|mix_?heads|pre_softmax|post_softmax|diff(erential)?_?att|lambda_",
    "a convolution, pooling or reduction": r"conv|pool|reduc|sr_ratio|downsample|unfold",
    "a gate": r"gat(e|ing|ed)\b|\bglu\b|silu|swish",
    "weights beside the projections": r"lora|adapter|low_?rank|factori[sz]",
    "a recurrence or a choice of tokens": r"lstm|\bgru\b|rnn|cumsum|recurren|\bslots?\b|topk|hash|rout(e|ing)|expert",
}
# The same of the name of a class and its docstring: these words in the code alone may be the mistake.
_MEANT = {
    "a pattern of visible tokens": r"local|chunk|block.?(wise|sparse)|strided|dilated|sparse.?att",
    "another kernel than softmax": r"elu\b|feature.?map|random.feature|decay|retention|linear.?att|sigmoid|relu|entmax|"
    r"sparsemax|gumbel|cosine|polar|hyperbolic|fourier|additive|bahdanau|luong|hopfield|kernel",
}


def beyond_the_formula(result: Experiment, finding: Finding) -> str:
    """Why a layer with something beside the formula could not be checked; "" where it is plain, so that it is wrong."""
    what = extra(result)
    if not what or (what == SCALE and finding.step in ("weights", "context", "concat", "out")):
        return ""
    line = f" (line {finding.line})" if finding.line else ""
    begins = finding.says.partition("explains it. ")[2].removesuffix(".")
    begins = f"{begins[0].lower()}{begins[1:]}" if begins else f"it differs from the {finding.step} on"
    return f"it has {what} beside the formula, and what that should compute is not known here; {begins}{line}."


def unknown_pattern(result: Experiment, finding: Finding) -> str:
    """Why a layer that sees other tokens, without a name for it, could not be checked; "" where it is wrong."""
    name = unnamed_length(result) if finding.step == "mask" and not finding.name else ""
    return f"what {name} is, no name says, and it decides which tokens are seen" if name else ""


def unnamed_length(attempt: Attempt) -> str:
    """An argument that was taken for a length or a width by trial alone: it may be a window, or the size of a block."""
    for key, role in attempt.built.roles.items():
        name = key.rpartition(".")[2]
        is_taken = role in ("context_length", "head_dim") and name not in attempt.request.own
        if is_taken and role not in (Setting((name,)).named, guess_role(name)):
            return name
    return ""


def doubt_on_call(attempt: Attempt) -> str:
    """What of the call was a guess, so that a failure may be the fault of the check; "" where names say all of it."""
    described = attempt.subject.described
    if is_function(attempt.subject):  # its arguments are known, or it is not called
        roles = attention_roles([p["name"] for p in described["call"]], described["name"]) or {}
        if "params" in roles.values():
            return "what its dict of weights must hold is a guess"
        return "how the three projections are packed, nothing says" if "qkv" in roles.values() else ""
    return (not attempt.subject.is_built and _doubt_on_building(attempt)) or _doubt_on_arguments(attempt)


def _doubt_on_building(attempt: Attempt) -> str:
    """The same of the arguments of the constructor."""
    described = attempt.subject.described
    if has_config(described):
        fields = [one for one in settings_of(described, attempt.subject.source) if len(one.path) > 1]
        is_known = bool(fields) and all(one.named for one in fields)
        return "" if is_known else "what its configuration must hold is a guess"
    numbers = [p["name"] for p in described.get("build", ()) if type(p["default"]) is int]
    unknown = [name for name in numbers if name not in ROLES and name not in attempt.request.own]
    return f"what {unknown[0]} is, no name says" if unknown else ""


def _doubt_on_arguments(attempt: Attempt) -> str:
    """The same of the arguments of forward."""
    names = [p["name"] for p in attempt.subject.described["call"] if p["required"]]
    for name in names[1:]:
        is_named = options_of(name) or name.lower() in (*words.KEYS_AND_VALUES, *MASK)
        if not is_named and not re.fullmatch(f"{words.CONTEXT_ARGUMENT}|{words.CONTEXT_ARGUMENT_TOO}", name.lower()):
            return f"what {name} is, no name says"
    first = re.escape(names[0]) if names else "x"
    if re.search(rf"\b{first}\b`?\s*[:=]?\s*[(\[]\s*\w+\s*,\s*\w+\s*[)\]]", attempt.text):
        return f"{names[0]} has two axes, as the text in the code says"
    return ""


def extra(result: Attempt) -> str:
    """What a layer has beside the formula, as a phrase; "" for a plain layer."""
    code = "\n".join(line.partition("#")[0] for line in result.text.splitlines()).lower()
    meant = "\n".join((result.subject.described["name"], *result.text.split('"""')[1::2])).lower()
    words = [phrase for phrase, pattern in _EXTRAS.items() if re.search(pattern, code)]
    if words := words + [phrase for phrase, pattern in _MEANT.items() if re.search(pattern, meant)]:
        return words[0]
    weights = {p["name"]: p["shape"] for p in result.observation.contents.get("parameters", ()) if not p["is_mask"]}
    if not isinstance(result, Experiment):
        return ""
    others = [name for name in weights if name not in result.reading.used]
    if result.reading.projections and others:
        return f"weights such as {others[0]}"
    return "weights that cannot be told apart" if weights and not result.reading.projections else ""
