"""Mistakes in making queries, keys and values."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import permutations, product

import torch
from torch import Tensor

from regard.mistakes.formula import QKV, Case, Projection, project
from regard.mistakes.mistake import Mistake, with_heads

WORDS = {"W_query": "queries", "W_key": "keys", "W_value": "values"}
_FIX = "queries, keys, values = self.W_query(x), self.W_key(x), self.W_value(x)"


def with_weights(case: Case) -> bool:
    """The layer has projections that read x."""
    return bool(case.projections) and case.qkv is None and not case.reads_pieces


def _is_square(case: Case, name: str) -> bool:
    return len(set(case.projections[name].weight.shape)) == 1


def _reads_itself(case: Case) -> bool:
    """Are there three weights only, each of the width of x?"""
    shape = case.projections["W_value"].weight.shape
    return "out_proj" not in case.projections and set(shape) == {case.x.shape[-1]} == {case.width}


def _has_square(case: Case, name: str) -> bool:
    return with_weights(case) and _is_square(case, name)


def _has_width(case: Case, number: int) -> bool:
    """Has x the width of these queries, keys or values; or may it have another, where one head hands it on?"""
    is_free = number == 2 and case.num_heads == 1 and "out_proj" not in case.projections
    return is_free or len(case.projections[QKV[number]].weight) == case.x.shape[-1]


def _inputs(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """What queries, keys and values are made of."""
    source = case.x if case.source is None else case.source
    return case.x, source, source


def _transposed(*which: str) -> Callable[[Case], tuple[Tensor, ...]]:
    def act(case: Case) -> tuple[Tensor, ...]:
        turned = {name: Projection(weight.t(), bias) for name, (weight, bias) in case.projections.items()}
        return project(replace(case, projections={**case.projections, **{name: turned[name] for name in which}}))

    return act


def _with_bias(times: float, which: str) -> Callable[[Case], tuple[Tensor, ...]]:
    def act(case: Case) -> tuple[Tensor, ...]:
        changed = {
            name: Projection(weight, bias if bias is None or which not in ("all", name) else bias * times)
            for name, (weight, bias) in case.projections.items()
        }
        return project(replace(case, projections=changed))

    return act


def _biased(times: float, which: str) -> Mistake:
    words = {"all": "queries, keys and values", **WORDS}[which]
    name = "bias left out" if not times else "bias added twice"
    return Mistake(
        f"{name}: of the {words}",
        "project",
        _with_bias(times, which),
        "queries" if which == "all" else WORDS[which],
        f"The {words} are {'the products with the weight alone' if not times else 'made with their bias twice'}.",
        "A linear map is x @ weight.T + bias, each once.",
        _FIX,
        lambda case: with_weights(case) and case.projections["W_query" if which == "all" else which].bias is not None,
        family=name,
        written=r"(?i)bias|\bb_?[qkv]" if times else "",
    )


def _not_projected(number: int) -> Mistake:
    words = tuple(WORDS.values())[number]
    return Mistake(
        f"not projected: the {words} are x itself",
        "project",
        lambda case: tuple(_inputs(case)[i] if i == number else t for i, t in enumerate(project(case))),
        words,
        f"The {words} are x as it is; they are made with {QKV[number]}.",
        "A query asks, a key is what it is compared with, and a value is what is handed over: each is a "
        "projection of x.",
        _FIX,
        lambda case: with_weights(case) and _has_width(case, number),
        rare=words != "values",
        family="not projected",
        announced=r"(?i)(values?|keys?|quer(y|ies)) (are|is|=) (the )?(inputs?|x\b|embeddings?)|no (value|"
        r"key|query) proj|"
        r"simplified|without (a )?(value|key|query) (proj|weight)",
    )


def _taken_for(order: tuple[int, ...]) -> Mistake:
    """Tensors, not weights, are exchanged: in a function of q, k and v, or where keys come from another text."""
    words = tuple(WORDS.values())
    changed = [f"the {words[j]} are used as {words[i]}" for i, j in enumerate(order) if i != j]
    made = " and ".join(changed)
    return Mistake(
        f"q, k, v swapped: {made}",
        "adapt",
        lambda qkv, case: tuple(qkv[i] for i in order),
        "scores",
        f"{made[0].upper()}{made[1:]}.",
        "Every query is compared with the keys, and the values are mixed by the result.",
        "scores = queries @ keys.mT  # and context = weights @ values",
        lambda case: case.qkv is not None or case.source is not None,
        rare=len(changed) > 2,
        family="q, k, v swapped",
    )


def _of_other_text(sources: str) -> Mistake:
    """Queries, keys and values from the wrong one of two texts: x or the memory."""
    changed = [f"the {word} are made of {'x' if s == 'x' else 'the memory'}"
               for word, s, right in zip(WORDS.values(), sources, "xmm", strict=True) if s != right]  # fmt: skip
    made = " and ".join(changed)

    def act(case: Case) -> tuple[Tensor, ...]:
        texts = {"x": case.x, "m": case.x if case.source is None else case.source}
        return tuple(case.projections[name](texts[s]) for name, s in zip(QKV, sources, strict=True))

    return Mistake(
        f"inputs swapped: {made}",
        "project",
        act,
        "queries" if sources[0] == "m" else "keys",
        f"{made[0].upper()}{made[1:]}.",
        "In cross-attention, the tokens of x ask, and the tokens of the memory are what they look at.",
        "queries, keys, values = self.W_query(x), self.W_key(memory), self.W_value(memory)",
        lambda case: with_weights(case) and case.source is not None,
        family="inputs swapped",
    )


def _split_first(case: Case) -> tuple[Tensor, ...]:
    """Each head projects its own piece of x: all with the same weights, or each with its own."""
    H, pieces = case.num_heads, case.x.unflatten(-1, (case.num_heads, -1))  # (B, T, H, d_in / H)
    projected = []
    for weight, bias in (case.projections[name] for name in QKV):
        if len(weight) == case.width and case.width != case.head_dim:  # the heads' weights one below the other
            t = torch.einsum("bthi,hdi->bthd", pieces, weight.unflatten(0, (H, -1)))
            t = t if bias is None else t + bias.view(H, -1)
        else:
            t = torch.nn.functional.linear(pieces, weight, bias)
        projected.append(t.flatten(2))
    return tuple(projected)


def _swapped(sources: tuple[str, ...]) -> Mistake:
    changed = [
        f"the {WORDS[name]} are made with {source}" for name, source in zip(QKV, sources, strict=True) if name != source
    ]
    kind = "q, k, v swapped" if len(set(sources)) == 3 else "one projection used twice"
    made = " and ".join(changed)
    return Mistake(
        name=f"{kind}: {made}",
        step="project",
        act=lambda case: tuple(case.projections[n](t) for n, t in zip(sources, _inputs(case), strict=True)),
        shows=next(WORDS[name] for name, source in zip(QKV, sources, strict=True) if name != source),
        says=f"{made[0].upper()}{made[1:]}.",
        why="A query asks, a key is what it is compared with, and a value is what is handed over: "
        "each has its own weights.",
        fix=_FIX,
        applies=with_weights,
        rare=len(changed) > 2 or len(set(sources)) < 2 or (len(set(sources)) < 3 and len(changed) > 1),
        family=kind,
        announced=r"(?i)\b(tied|shared?|same) (weights?|proj|q|k)|tied|shared_?(qk|kv)|reformer",
    )


MISTAKES = (
    Mistake(
        "embedding split before projection",
        "project",
        _split_first,
        "queries",
        "x is cut into {num_heads} pieces, and each head projects only its own piece; "
        "every head should project all of x.",
        "A head that gets only a piece of each vector cannot look for anything in the rest of it.",
        "queries = self.W_query(x).view(B, T, num_heads, head_dim)  # project first, then split",
        applies=lambda case: case.qkv is None and case.reads_pieces,
    ),
    Mistake(
        "transposed weights",
        "project",
        _transposed(*QKV),
        "queries",
        "x is multiplied by the weight as nn.Linear stores it, (out, in); nn.Linear itself computes x @ weight.T.",
        "The layer still runs where d_in equals d_out, but weights from elsewhere give other numbers.",
        "queries = self.W_query(x)  # or x @ self.W_query.weight.T",
        applies=lambda case: with_weights(case) and all(_is_square(case, n) for n in QKV),
    ),
    *(
        Mistake(
            f"transposed weights: of the {words}",
            "project",
            _transposed(name),
            words,
            f"The weight of the {words} is used the other way round than the others.",
            "The layer still runs where the weight is square, but weights from elsewhere give other numbers.",
            "x @ W for every W that is (in, out), x @ W.T for every W that is (out, in)",
            applies=partial(_has_square, name=name),
            rare=True,
            family="transposed weights",
        )
        for name, words in WORDS.items()
    ),
    *(_swapped(sources) for sources in permutations(QKV) if sources != QKV),
    *(_swapped(sources) for sources in product(QKV, repeat=3) if len(set(sources)) < 3),
    *(_taken_for(order) for order in permutations(range(3)) if order != (0, 1, 2)),
    *(_of_other_text(sources) for sources in ("mxx", "mmm", "xxx", "xxm", "xmx")),
    *(_not_projected(number) for number in range(3)),
    replace(
        _not_projected(2),
        applies=lambda case: with_weights(case) and with_heads(case) and _reads_itself(case),
        also={
            "output": lambda concat, case: case.projections["W_value"](concat)
        },  # the third weight is that of the output
    ),
    *(_biased(times, which) for times in (0.0, 2.0) for which in ("all", "W_query", "W_value")),  # keys': no difference
    *(
        Mistake(
            "mean of all tokens subtracted",
            "read",
            lambda case, change=change: replace(case, x=change(case.x)),
            "queries",
            "From every token the {what} is taken, in which the tokens after it are, too.".replace("{what}", what),
            "A token must not know of the tokens after it; a norm works on the numbers of one token, dim=-1.",
            "leave x as it is, or use a norm over its last axis",
            lambda case: with_weights(case) and case.x.shape[1] > 1,
            written=r"mean|max|std|sum|[nN]orm",
        )
        for what, change in (
            ("mean of all tokens", lambda x: x - x.mean(1, keepdim=True)),
            ("largest of all tokens", lambda x: x - x.amax(1, keepdim=True)),
            ("sum of all tokens", lambda x: x - x.sum(1, keepdim=True)),
        )
    ),
)
