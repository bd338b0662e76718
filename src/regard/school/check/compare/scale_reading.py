"""Scale reading: are the scores of a run divided by √head_dim, or by what the layer says otherwise?

Another scale is meant where queries and keys are normalised, where it is learned, or where the weights begin smaller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torch import Tensor

from regard.school.check.compare.anatomy import Anatomy
from regard.school.check.compare.experiment import Experiment
from regard.school.check.learner_code.text_hints import with_header

_LEARNED_SCALE = ("temperature", "scale", "tau", "sharpness", "logit_scale", "softmax_scale", "beta")
ONE_NORMED = "only its queries or only its keys are normalised"
OVER = "its queries or keys are normalised over the"
NOT_SCALED = "its scores are not divided by √head_dim"
_MUP = re.compile(r"(?i)\bmup\b|µp|maximal update").search


def kept_weights(result: Experiment) -> dict[str, Tensor]:
    """The weights of a layer, by their names."""
    return {n.removeprefix("state."): t for n, t in result.tensors.items() if n.startswith("state.")}


def doubts_on_scale(result: Experiment, found: Anatomy) -> Iterator[str]:
    """What is not as it should be in the scale, and in the norms of queries and keys."""
    if not _is_scaled(found) and not is_meant(result, found):
        yield NOT_SCALED
    if (found.queries.is_normed or found.keys.is_normed) and not _says_norm(result):
        yield "its queries or keys are normalised, and nothing says that this is meant"
    if found.queries.is_normed != found.keys.is_normed:
        yield ONE_NORMED
    if over := found.queries.over or found.keys.over:
        yield f"{OVER} {over}"
    if found.scoring.fault:
        yield found.scoring.fault


def promises_both_norms(result: Experiment) -> bool:
    """Are there two norms, by the names of their weights, or does the text speak of both queries and keys?"""
    names = {n.lower() for n in kept_weights(result) if re.search(r"(?i)norm|ln|gain|gamma|scale", n)}
    twins = {n: re.sub(r"(?<![a-z])q(uery)?(?![a-z])", lambda m: "key" if m[1] else "k", n) for n in names}
    said = r"(?i)\bqk[- _]?norm|norm\w* .{0,40}(quer(y|ies)|\bq)\b.{0,6} (and|&) .{0,6}(keys?|k)\b"
    return any(twin in names and twin != n for n, twin in twins.items()) or bool(re.search(said, result.text))


def _is_scaled(found: Anatomy) -> bool:
    return is_near(found.scale, found.head.q.shape[-1] ** -0.5)


def is_meant(result: Experiment, found: Anatomy) -> bool:
    """Is another scale than √head_dim meant: for normalised queries and keys, learned, or as the weights begin?"""
    if _is_scaled(found):
        return False
    if found.queries.is_normed and found.keys.is_normed:
        return _says_norm(result)
    H = found.head.q.shape[1]
    names = [n for n, t in kept_weights(result).items() if t.numel() in (1, H)]
    if any(word in n.lower() for n in names for word in _LEARNED_SCALE):
        return True
    if any(is_near(found.scale, f) for v in _told(result) for f in (v, v**-0.5, 1 / v)):
        return True
    if _MUP(result.text):  # q·k / head_dim, times a number that it keeps
        times = found.scoring.factor * found.head.q.shape[-1]
        sizes = (found.head.q.shape[-1], found.head.q.shape[1] * found.head.q.shape[-1])
        kept = [v for v in _numbers_of(result) if v not in sizes]
        return any(bool(((times - number).abs() < 1e-4 * abs(number)).all()) for number in (1.0, *kept) if number)
    return _begins_smaller(result, found)


def is_near(scale: Tensor, number: float) -> bool:
    """Is the scale of every head this number?"""
    return bool(((scale / number - 1).abs() < 1e-4).all())


def _told(result: Experiment) -> list[float]:
    """The numbers with which the queries are multiplied as a configuration says: query_pre_attn_scalar in Gemma."""
    attributes = result.observation.contents.get("attributes", {})
    named = [v for n, v in attributes.items() if re.search(r"(?i)scalar|multiplier", n) and type(v) in (int, float)]
    return [float(v) for v in named if v > 0]


def _numbers_of(result: Experiment) -> list[float]:
    """The numbers among the attributes of a layer."""
    attributes = result.observation.contents.get("attributes", {})
    return [float(v) for v in attributes.values() if type(v) in (int, float)]


def _says_norm(result: Experiment) -> bool:
    """Is it said that queries and keys are normalised: by a module or a weight for it, a name, or a sentence?"""
    names = " ".join((*kept_weights(result), *(one["name"] for one in result.observation.contents.get("inside", ()))))
    sentences = [line.partition("#")[2] for line in result.text.splitlines()] + result.text.split('"""')[1::2]
    words = " ".join((result.subject.described["name"], *sentences))
    return bool(re.search(r"(?i)norm|scale|temperature|tau|gamma", names) or re.search(r"(?i)norm|cosine|l2\b", words))


def _begins_smaller(result: Experiment, found: Anatomy) -> bool:
    """Do the weights of queries and keys begin so small that the scores need no scale, as in T5?"""
    spreads = {p["name"]: p["spread"] for p in result.observation.contents.get("parameters", ())}
    places = (found.queries.place, found.keys.place, found.values.place)
    if any(place is None or len(place.names) != 1 for place in places) or len({p.names for p in places if p}) < 3:
        return False
    q, k, v = (spreads.get(place.names[0], 0.0) for place in places if place is not None)
    if not v or not is_near(found.scale, 1.0):
        return False
    expected = found.head.q.shape[-1] ** -0.5
    is_said = re.search(r"(?i)\bT5\b|folded|initiali[sz]ation", with_header(result.subject.source, result.text))
    low, high = (0.5, 2.0) if is_said else (0.75, 1.33)
    is_small = [low * expected < one < high * expected for one in ((q / v) * (k / v), q / max(k, 1e-9))]
    return any(is_small)  # of both, beside the values; or of the queries beside the keys
