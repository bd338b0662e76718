"""Labels of numbers go where the numbers go, through views, copies, reductions and products."""

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from regard.heads.calls.lineage import TensorLineage
from regard.heads.calls.number_labels import BASE, Labeller, Unlabelled, varies
from regard.heads.intercept.paths import _name_of

B, T, H, D = 2, 5, 3, 4


class Recording(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.lineage = TensorLineage()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.lineage.record(_name_of(func), func, args, kwargs or {}, out)
        return out


def labels_of(function, x=None):
    x = torch.randn(B, T, H * D) if x is None else x
    layer, mode = nn.Linear(x.shape[-1], H * D), Recording()
    with torch.no_grad(), mode:
        out = function(layer(x))
    return Labeller().labels(mode.lineage.of(out)), out


TOKENS = torch.arange(B * T).view(B, T, 1).expand(B, T, H * D)
FEATURES = torch.arange(H * D).expand(B, T, H * D)
MOVES = {
    "heads": lambda t: t.view(B, T, H, D).transpose(1, 2),
    "split and joined": lambda t: torch.cat(t.split(D, dim=2), dim=0),
    "stacked": lambda t: torch.stack(t.chunk(H, -1), 1),
    "picked": lambda t: t[:, 1:, D : 2 * D],
    "copied": lambda t: t.unflatten(-1, (H, D)).permute(2, 0, 1, 3).contiguous().flatten(0, 1),
    "repeated": lambda t: t.repeat_interleave(2, dim=1),
    "complex": lambda t: torch.view_as_real(torch.view_as_complex(t.reshape(B, T, -1, 2))).flatten(2),
}


@pytest.mark.parametrize("move", MOVES)
def test_labels_move_with_their_numbers(move):
    labels, _ = labels_of(MOVES[move])
    place, feature = MOVES[move](TOKENS.clone().float()), MOVES[move](FEATURES.clone().float())
    if move == "complex":  # both numbers of a pair have one label
        feature = feature // 2 * 2
    assert torch.equal(labels.place % BASE, place.long())
    assert torch.equal(labels.feature % BASE, feature.long())


def test_functions_of_single_numbers_keep_their_labels():
    labels, _ = labels_of(lambda t: torch.tanh(2 * t + torch.ones(H * D)).clamp(-1, 1))
    assert torch.equal(labels.place % BASE, TOKENS)
    assert torch.equal(labels.feature % BASE, FEATURES)


def test_a_mean_has_the_labels_of_one_of_its_numbers():
    labels, out = labels_of(lambda t: t.mean(1))
    assert labels.place.shape == out.shape
    assert torch.equal(labels.feature % BASE, FEATURES[:, 0])


def test_a_product_has_those_of_both_factors():
    layer, mode, x = nn.Linear(D, D), Recording(), torch.randn(B, T, D)
    with torch.no_grad(), mode:
        y = layer(x)
        scores = torch.einsum("btd,bsd->bst", y, y)
    step = mode.lineage.of(scores)
    left, right = (Labeller().labels(step, side).place % BASE for side in (0, 1))
    assert torch.equal(left, torch.arange(B * T).view(B, 1, T).expand(B, T, T))
    assert torch.equal(right, torch.arange(B * T).view(B, T, 1).expand(B, T, T))


def test_another_projection_has_other_features():
    layers, mode, x = [nn.Linear(D, D) for _ in range(H)], Recording(), torch.randn(B, T, D)
    with torch.no_grad(), mode:
        out = torch.stack([layer(x) for layer in layers], 1)
    place, feature = Labeller().labels(mode.lineage.of(out))
    assert varies(feature, 1)
    assert not varies(place, 1)


def test_what_is_written_in_parts_has_no_labels():
    def written(t):
        out = torch.empty(B, T, H * D)
        out[:] = t
        return out.view(B, T, H, D)

    with pytest.raises(Unlabelled, match="written in parts"):
        labels_of(written)


def test_a_projection_of_tokens_that_were_mixed_has_new_tokens():
    """As in an MLP over tokens: what was a feature of it is a token of what follows."""
    x, mixer, layer, mode = torch.randn(B, T, H * D), nn.Linear(T, 7), nn.Linear(H * D, H * D), Recording()
    with torch.no_grad(), mode:
        out = layer(mixer(x.transpose(1, 2)).transpose(1, 2))
    place, feature = Labeller().labels(mode.lineage.of(out))
    assert torch.equal(place % BASE, torch.arange(B * 7).view(B, 7, 1).expand(B, 7, H * D))
    assert torch.equal(feature % BASE, torch.arange(H * D).expand(B, 7, H * D))
