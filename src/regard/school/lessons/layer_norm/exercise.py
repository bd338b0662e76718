"""Layer norm, from nothing."""

import torch

from regard.school.exercises import Fault, Function, Judged, Wrong


def arguments(random):
    B, T, E = 3, 5, 7
    x = torch.randn(B, T, E, generator=random) * 3 + 2
    x[:, 1] = 0.002 * torch.randn(B, E, generator=random)  # where 1e-5 shows
    x[:, 3] = 4.0  # of equal numbers
    return x, 1 + torch.randn(E, generator=random), torch.randn(E, generator=random)


def make(axes=(-1,), less=0, root=lambda variance: (variance + 1e-5).sqrt(), centered=True, affine="both"):
    def layer_norm(x, scale, shift):
        mean = x.mean(axes, keepdim=True)
        variance = x.var(axes, keepdim=True, correction=less)
        normed = (x - mean if centered else x) / root(variance)
        if affine == "shift first":
            return (normed + shift) * scale
        return normed * (1 if affine in ("none", "shift") else scale) + (0 if affine in ("none", "scale") else shift)

    return layer_norm


def rms(x, scale, shift):
    return x / ((x**2).mean(-1, keepdim=True) + 1e-5).sqrt() * scale + shift


def fused(layer_norm, x, scale, shift):
    """Which operations of torch were used, by name."""
    from torch.utils._python_dispatch import TorchDispatchMode

    names = []

    class Names(TorchDispatchMode):
        pass

    def dispatch(self, function, types, args=(), kwargs=None):
        names.append(function.__name__)
        return function(*args, **(kwargs or {}))

    Names.__torch_dispatch__ = dispatch  # set here, it does not import torch's compiler, which takes a second

    with Names():
        layer_norm(x, scale, shift)
    return [one for one in names if "layer_norm" in one or "batch_norm" in one]


def judge_own(names, x, scale, shift):
    if not names:
        return None
    says = f"It calls {names[0].split('.')[0].removeprefix('native_')} of torch; write the four operations."
    return Fault("torch's own norm", says, why="You know what it does when you have written it once.")


parts = [
    Function(
        "layer_norm",
        arguments,
        make(),
        wrong=[
            Wrong(
                "variance of a sample",
                "The variance is divided by E − 1; layer norm divides by E: var(…, correction=0).",
                make(less=1),
                why="x.var() and x.std() estimate the variance of a larger population unless they are told not to.",
            ),
            Wrong("not the root", "It is divided by the variance; divide by its root.", make(root=lambda v: v + 1e-5)),
            Wrong(
                "no 1e-5",
                "1e-5 is missing: a vector of equal numbers gives 0 / 0, NaN.",
                make(root=lambda v: v.sqrt()),
            ),
            Wrong(
                "1e-5 outside of the root",
                "1e-5 is added to the root; add it to the variance, below the root.",
                make(root=lambda v: v.sqrt() + 1e-5),
                why="√(0 + 1e-5) is 0.003, which is much more than 1e-5: GPT-2's weights know the difference.",
            ),
            Wrong("mean not subtracted", "The mean is not subtracted.", make(centered=False)),
            Wrong(
                "RMS norm",
                "The mean is not subtracted, neither above nor in the variance: that is RMS norm, as in Llama.",
                rms,
            ),
            Wrong("over the batch", "Mean and variance go over the texts of the batch, dim=0.", make(axes=(0,))),
            Wrong(
                "over the tokens",
                "Mean and variance go over the tokens, dim=1; take dim=-1.",
                make(axes=(1,)),
                why="A token must not see the statistics of others, least of all of later ones.",
            ),
            Wrong(
                "over everything",
                "One mean for the whole tensor: give mean and variance dim=-1, keepdim=True.",
                make(axes=(0, 1, 2)),
            ),
            Wrong(
                "over tokens and coordinates",
                "Mean and variance go over a text; each token has its own.",
                make(axes=(1, 2)),
            ),
            Wrong("no scale", "scale is not used.", make(affine="shift")),
            Wrong("no shift", "shift is not used.", make(affine="scale")),
            Wrong("neither scale nor shift", "scale and shift are not used.", make(affine="none")),
            Wrong(
                "shift before scale",
                "shift is added before scale is multiplied; first scale, then shift.",
                make(affine="shift first"),
            ),
            Wrong(
                "no keepdim",
                "mean is (B, T), and x − mean needs (B, T, 1): keepdim=True.",
                raises="must match the size of tensor",
            ),
            Wrong(
                "minus the shift",
                "The shift is subtracted; it is added.",
                lambda x, scale, shift: -make()(x, -scale, shift),
            ),
            Wrong(
                "scale and shift exchanged",
                "shift multiplies and scale is added; it is the other way round.",
                lambda x, scale, shift: make()(x, shift, scale),
            ),
            Wrong(
                "sum of squares",
                "The squares are added up; the variance is their mean.",
                lambda x, scale, shift: make(root=lambda variance: (variance * x.shape[-1] + 1e-5).sqrt())(
                    x, scale, shift
                ),
            ),
            Wrong(
                "mean distance",
                "The mean of the sizes |x − mean| is taken; the variance is the mean of the squares.",
                lambda x, scale, shift: (
                    (x - x.mean(-1, keepdim=True))
                    / ((x - x.mean(-1, keepdim=True)).abs().mean(-1, keepdim=True) + 1e-5).sqrt()
                    * scale
                    + shift
                ),
            ),
            Wrong(
                "1e-3 for 1e-5",
                "The small number is 1e-3; it is 1e-5.",
                lambda x, scale, shift: make(root=lambda variance: (variance + 1e-3).sqrt())(x, scale, shift),
            ),
            Wrong(
                "1e-8 for 1e-5",
                "The small number is 1e-8; it is 1e-5.",
                lambda x, scale, shift: make(root=lambda variance: (variance + 1e-8).sqrt())(x, scale, shift),
            ),
            Wrong(
                "multiplied by the root",
                "It is multiplied by the root of the variance; it is divided by it.",
                lambda x, scale, shift: make(root=lambda variance: 1 / (variance + 1e-5).sqrt())(x, scale, shift),
            ),
            Wrong(
                "only the mean divided",
                "x − mean / root divides the mean alone: put (x − mean) in parentheses.",
                lambda x, scale, shift: (
                    x - x.mean(-1, keepdim=True) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt() * scale + shift
                ),
            ),
            Wrong(
                "mean of squares less the mean",
                "The variance is the mean of the squares less the square of the mean; the square is missing.",
                lambda x, scale, shift: (
                    (x - x.mean(-1, keepdim=True))
                    / ((x**2).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) + 1e-5).sqrt()
                    * scale
                    + shift
                ),
            ),
            Wrong(
                "1 + scale",
                "The scale is 1 + scale; it is scale alone.",
                lambda x, scale, shift: make()(x, 1 + scale, shift),
            ),
            Wrong(
                "mean of the sizes",
                "The mean is that of the sizes |x|.",
                lambda x, scale, shift: (
                    (x - x.abs().mean(-1, keepdim=True))
                    / (((x - x.abs().mean(-1, keepdim=True)) ** 2).mean(-1, keepdim=True) + 1e-5).sqrt()
                    * scale
                    + shift
                ),
            ),
            Wrong(
                "squares of x",
                "The variance is the mean of x², without the mean subtracted; x − mean is squared.",
                lambda x, scale, shift: (
                    (x - x.mean(-1, keepdim=True)) / ((x**2).mean(-1, keepdim=True) + 1e-5).sqrt() * scale + shift
                ),
            ),
            Wrong(
                "root mean square",
                "The mean is not subtracted, neither above nor below, and nothing is shifted: that is RMSNorm.",
                lambda x, scale, shift: rms(x, scale, 0 * shift),
            ),
            Wrong(
                "over texts and tokens",
                "Mean and variance go over texts and tokens, for each coordinate: that is batch norm. They go "
                "over the last axis.",
                make(axes=(0, 1)),
            ),
            Wrong(
                "standard deviation, and its root",
                "std is the root already; the root of it is taken once more.",
                lambda x, scale, shift: (
                    (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5).sqrt() * scale + shift
                ),
            ),
            Wrong(
                "std of a sample",
                "x.std divides by one less than the number of values, and 1e-5 is added outside of the root.",
                lambda x, scale, shift: (
                    (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5) * scale + shift
                ),
            ),
        ],
    ),
    Judged("layer_norm", arguments, judge_own, through=fused),
]
