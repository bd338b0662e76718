"""A test that passes anything."""

import torch

from regard.school.exercises import Fault, Judged


def weights_of(q, k, divisor):
    return (q @ k.T / divisor).softmax(-1)


def judge(result):
    tensors = result if isinstance(result, (tuple, list)) and len(result) == 3 else ()
    shapes = {tuple(t.shape) for t in tensors if isinstance(t, torch.Tensor)}
    if len(shapes) != 1 or len(next(iter(shapes))) != 2 or not all(isinstance(t, torch.Tensor) for t in tensors):
        return Fault("not q, k, v", "inputs() must return three tensors q, k, v of one shape (T, D).")
    if not all(t.is_floating_point() for t in tensors):
        says = "inputs() returns whole numbers (int64), and the test fails on them: softmax and mean need floats, 1.0."
        return Fault("whole numbers", says)
    q, k, v = (t.double() for t in tensors)
    D = q.shape[1]
    weights = weights_of(q, k, D**0.5)
    layers = {
        "unscaled": weights_of(q, k, 1),
        "divided_by_D": weights_of(q, k, D),
        "average": torch.full_like(weights, 1 / len(v)),
    }
    right = weights @ v
    if not right.isfinite().all():
        return Fault("not finite", "On these inputs `attention` itself gives inf or NaN. Use ordinary numbers.")
    accepted = [name for name, w in layers.items() if torch.allclose((w @ v).float(), right.float(), atol=1e-3)]
    if not accepted:
        return None
    names = ", ".join(accepted)
    if (v - v[:1]).abs().max() < 1e-3:
        return Fault(
            "values alike",
            f"The test accepts {names}: all rows of v are the same.",
            why="A mean of equal rows is that row, whatever the weights are.",
        )
    if D == 1:
        return Fault("head_dim 1", f"The test accepts {names}: head_dim is 1 here, and √1 = 1.")
    largest = weights.amax(-1).mean()
    if largest > 0.9:
        return Fault(
            "saturated",
            f"The test accepts {names}: the largest weight of each token is {largest:.4f} on average.",
            why="When one score is far ahead of the others, the softmax gives 1 and 0 whatever it is divided by.",
        )
    return Fault(
        "flat",
        f"The test accepts {names}: the weights are nearly the same for all keys, {1 / len(v):.2f} each.",
        why="Where scores are close to each other, no scale matters, and not even whether there are scores.",
    )


parts = [Judged("inputs", lambda random: (), judge)]
