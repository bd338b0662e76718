"""Broken: x is not d_in wide."""

import torch

from regard.school.exercises import Fault, Judged, Wrong, cat


def arguments(random):
    d_in, d_out = torch.tensor([3, 5, 7, 11, 13])[torch.randperm(5, generator=random)][:2].tolist()
    return torch.randn(2, 4, d_in, generator=random), d_out


def attention(x, weights):
    q, k, v = (x @ weights[name].T for name in ("W_query", "W_key", "W_value"))
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


def layers_of(weights):
    """The weights of each attention layer, in order, and of what else there is."""
    layers, others = {}, {}
    for name, t in weights.items():
        path, _, role = name.removesuffix(".weight").rpartition(".")
        if role in ("W_query", "W_key", "W_value"):
            layers.setdefault(path, {})[role] = t
        else:
            others.setdefault(name.rpartition(".")[0], {})[name.rpartition(".")[2]] = t
    return list(layers.values()), list(others.values())


def linear(x, one):
    return x @ one["weight"].T + one.get("bias", torch.zeros(()))


def same(a, b):
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-5)


def tried(compute):
    try:
        return compute()
    except (RuntimeError, KeyError):
        return torch.empty(0)


def judge(result, x, d_out):
    if not isinstance(result, (tuple, list)) or len(result) != 2 or not isinstance(result[1], dict):
        return Fault("run was changed", "run returns the output and the weights; it is given, leave it as it is.")
    out, (layers, others) = result[0], layers_of(result[1])
    if not isinstance(out, torch.Tensor) or len(layers) != 2:
        return Fault(
            "not two layers", f"The model has {len(layers)} attention layers with weights; it has first and second."
        )
    first, second = layers
    hidden = attention(x, first)
    between = [hidden, *(tried(lambda one=one: linear(hidden, one)) for one in others)]
    through = [tried(lambda one=one: attention(one, second)) for one in between]
    after = [tried(lambda one=one, other=other: linear(one, other)) for one in through for other in others]
    if out.shape == (*x.shape[:2], d_out) and any(same(out, one) for one in [*through, *after]):
        return None
    alone = tried(lambda: attention(x, second))
    other_order = tried(lambda: attention(alone, first))
    explained = {
        "layers beside each other": ([hidden + alone, (hidden + alone) / 2] if hidden.shape == alone.shape else []),
        "first layer skipped": [alone, *(tried(lambda one=one: attention(linear(x, one), second)) for one in others)],
        "second layer skipped": [hidden, *(tried(lambda one=one: linear(hidden, one)) for one in others)],
        "second layer first": [other_order],
    }
    says = {
        "layers beside each other": "Both layers get x, and their outputs are added; x goes through the first, then "
        "what it returns through the second.",
        "first layer skipped": "It runs, but the first layer's output is not used any more.",
        "second layer skipped": "It runs, but the second layer's output is not used any more.",
        "second layer first": "x goes through the second layer first.",
    }
    why = "The error is gone because nothing goes through both layers; the task is to make them fit."
    for name, outs in explained.items():
        if any(same(out, one) for one in outs if one.numel()):
            return Fault(name, says[name], why)
    if out.shape != (*x.shape[:2], d_out):
        shape, wanted = tuple(out.shape), (*x.shape[:2], d_out)
        return Fault("another shape", f"The output has shape {shape}; with d_out = {d_out} it is {wanted}.")
    return Fault(
        "not the second of the first",
        "The output is not second(first(x)) of these weights. Is something added, cut off or repeated?",
    )


width = Wrong(
    "width is not d_in",
    "A layer still gets tokens of another width than the d_in that it was built with.",
    raises="cannot be multiplied",
    why="d_in of a layer is the width of what it gets: for the second layer, that is what the first one returns.",
)
parts = [Judged("run", arguments, judge, runs=3, wrong=[width])]

# One layer's values are the words themselves, so what comes out tells how much of each is in it.
PADDED = {
    name: torch.cat([t, torch.zeros(11 - len(t), 11)])
    for name, t in cat.layer_state(1).items()
    if name in ("W_query.weight", "W_key.weight")
} | {"W_value.weight": torch.eye(11)}
picture = cat.Picture(
    "TwoLayers",
    [(cat.WIDE[None],)],
    lambda results: results[0][0, :, 5:][None],
    "Through both layers: what each word has of each, a mix of mixes:",
    cat.WORDS,
    build=(11, 11),
    state={f"{layer}.{name}": t for layer in ("first", "second") for name, t in PADDED.items()},
)
