"""Break it: expose a wrong layer."""

import torch

from regard.school.exercises import Fault, Judged


def scores_of(q, k, divisor):
    T = q.shape[0]
    return (q @ k.T / divisor).masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -torch.inf)


def attention(q, k, v):
    return scores_of(q, k, q.shape[1] ** 0.5).softmax(-1) @ v


def layer_1(q, k, v):
    weights = scores_of(q, k, q.shape[1] ** 0.5).exp()
    return weights / weights.sum(-1, keepdim=True) @ v


def layer_2(q, k, v):
    return scores_of(q, k, q.shape[0] ** 0.5).softmax(-1) @ v


def layer_3(q, k, v):
    scores = (q @ k.T / q.shape[1] ** 0.5).tril()
    return scores.masked_fill(scores == 0, -torch.inf).softmax(-1) @ v


def tidy(number):
    """One digit after the point, with a true minus sign, and no negative zero."""
    return f"{round(float(number), 1) + 0.0:.1f}".replace("-", "−")


def overflow(scores, T, D):
    return Fault(
        "scores too small",
        f"layer_1 is right here: the scores on your input lie between {tidy(scores.min())} and {tidy(scores.max())}.",
        why="exp of these is an ordinary number. How large must a score be so that it is not?",
    )


def square(scores, T, D):
    if T != D:
        return None
    return Fault(
        "T equals D",
        f"layer_2 is right here: your input has T = {T} tokens and head_dim D = {D}.",
        why="Sizes that are equal hide whatever mixes them up.",
    )


def no_zero(scores, T, D):
    if (scores == 0).any():
        return None
    return Fault(
        "no score is 0",
        "layer_3 is right here: no token of your input has a score of exactly 0 with a key that it may see.",
        why="Random numbers practically never give exactly 0; choose q and k by hand.",
    )


def described(result):
    if isinstance(result, torch.Tensor):
        return f"one tensor of shape {tuple(result.shape)}"
    if isinstance(result, (tuple, list)):
        kinds = [str(tuple(t.shape)) if isinstance(t, torch.Tensor) else type(t).__name__ for t in result]
        return f"a {type(result).__name__} of {len(result)}: {', '.join(kinds)}"
    return repr(result) if result is None else f"a {type(result).__name__}"


def judge(layer, reason):
    def judged(result):
        stacked = isinstance(result, torch.Tensor) and result.dim() == 3  # q, k, v = torch.randn(3, T, D)
        tensors = list(result) if stacked or isinstance(result, (tuple, list)) else []
        shapes = {tuple(t.shape) if isinstance(t, torch.Tensor) else () for t in tensors}
        if len(tensors) != 3 or len(shapes) != 1 or len(next(iter(shapes))) != 2:
            says = f"Return three tensors q, k, v of one shape (T, D): `return q, k, v`. Yours is {described(result)}."
            return Fault("not q, k, v", says)
        q, k, v = (t.float() for t in tensors)
        right, wrong = attention(q, k, v), layer(q, k, v)
        if not all(t.isfinite().all() for t in (q, k, v, right)):
            return Fault(
                "attention fails, too",
                "On your input `attention` itself gives inf or NaN. Use smaller numbers.",
                why="An input on which the right layer fails says nothing about the wrong one.",
            )
        if not torch.allclose(wrong, right, atol=1e-3):
            return None
        T, D = q.shape
        scores = (q @ k.T / D**0.5)[torch.ones(T, T, dtype=torch.bool).tril()]
        if fault := reason(scores, T, D):
            return fault
        if (v - v[:1]).abs().max() < 1e-3 or (scores - scores[0]).abs().max() < 1e-3:
            return Fault(
                "nothing to weigh",
                "Whatever the weights are, the output is the same: all scores or all values of your input are alike.",
                why="Random values make every difference of the weights visible.",
            )
        return Fault(
            "saturated",
            "Both give the same, because for each token one score is far ahead and gets all the weight.",
            why="Smaller numbers in q and k bring the scores closer together.",
        )

    return judged


def nothing(random):
    return ()


parts = [
    Judged("break_1", nothing, judge(layer_1, overflow)),
    Judged("break_2", nothing, judge(layer_2, square)),
    Judged("break_3", nothing, judge(layer_3, no_zero)),
]
