import pytest
import torch
from torch import nn

import regard
from regard.school.check.compare.parameters import _row, assignments, find_norm
from regard.school.check.learner_code.driver import run
from school.check.learner import Learner


def read(module, num_heads=3, **options):
    seen, _ = run(module, {}, {})
    values = {name: p.detach() for name, p in module.named_parameters()}
    return assignments(seen["parameters"], values, num_heads, **options)


def linears(**sizes):
    module = nn.Module()
    for name, size in sizes.items():
        module.add_module(name, nn.Linear(*size))
    return module


@pytest.mark.parametrize(
    "names",
    [
        ("W_query", "W_key", "W_value"),
        ("q_proj", "k_proj", "v_proj"),
        ("queries", "keys", "values"),
        ("w_qs", "w_ks", "w_vs"),
        ("toq", "tok", "tov"),
    ],
)
def test_usual_names_say_which_is_which(names):
    module = linears(**{names[1]: (13, 21), names[0]: (13, 21), names[2]: (13, 21), "last": (21, 21)})
    (one,) = read(module)
    assert one.projections["W_query"].weight.equal(getattr(module, names[0]).weight)
    assert one.projections["out_proj"].weight.equal(module.last.weight)
    assert one.named


def test_names_that_say_nothing_are_tried_in_every_order():
    module = linears(alpha=(13, 21), beta=(13, 21), gamma=(13, 21), delta=(21, 21))
    found = read(module)
    assert len(found) > 1
    assert not any(one.named for one in found)


def test_a_packed_weight_has_the_order_of_its_name_or_any():
    ordered = read(linears(qkv_proj=(21, 63), out_proj=(21, 21)))
    assert len(ordered) == 2  # whole, and head by head
    assert len(read(linears(c_attn=(21, 63), c_proj=(21, 21)))) == 7


def test_bare_parameters_are_read_both_ways():
    module = nn.Module()
    for name in ("W_q", "W_k", "W_v"):
        module.register_parameter(name, nn.Parameter(torch.randn(13, 21)))
    first, second = read(module, d_in=13)
    assert first.d_in == 13
    assert second.d_in == 21
    assert not first.is_linear


def test_heads_in_a_list_are_joined():
    module = nn.Module()
    module.heads = nn.ModuleList(linears(key=(13, 7), query=(13, 7), value=(13, 7)) for _ in range(3))
    module.proj = nn.Linear(21, 21)
    one = read(module)[0]
    assert one.is_list
    assert one.projections["W_key"].weight.equal(torch.cat([head.key.weight for head in module.heads]))


def test_heads_in_one_parameter_of_three_axes_are_joined():
    module = nn.Module()
    for name in ("W_q", "W_k", "W_v"):
        module.register_parameter(name, nn.Parameter(torch.randn(3, 13, 7)))
    one = read(module, d_in=13)[0]
    assert one.projections["W_query"].weight.equal(module.W_q.transpose(1, 2).flatten(0, 1))


def test_the_learner_can_say_which_is_which():
    module = linears(a=(13, 21), b=(13, 21), c=(13, 21), d=(21, 21))
    names = {"W_query": "b", "W_key": "a", "W_value": "c", "out_proj": "d"}
    (one,) = read(module, names=names)
    assert one.projections["W_query"].weight.equal(module.b.weight)
    with pytest.raises(ValueError, match="no weight is called e; there are a, b, c, d"):
        read(module, names={**names, "W_key": "e"})
    with pytest.raises(ValueError, match="names give W_query; give W_query, W_key and W_value, or qkv"):
        read(module, names={"W_query": "a"})


def test_a_mask_that_is_a_parameter_is_no_projection():
    module = linears(W_q=(21, 21), W_k=(21, 21), W_v=(21, 21))
    module.register_parameter("mask", nn.Parameter(torch.ones(21, 21).tril()))
    (one,) = read(module)
    assert "out_proj" not in one.projections


class Normed(Learner):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__(d_in, d_out, context_length, dropout, num_heads)
        self.norm = nn.LayerNorm(d_in)

    def forward(self, x):
        return super().forward(self.norm(x))


class RootMeanSquare(Normed):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__(d_in, d_out, context_length, dropout, num_heads)
        self.norm = nn.RMSNorm(d_in, eps=1e-6)


class WithAWrongScale(Normed):
    def forward(self, x):
        T = x.shape[1]
        q, k, v = (
            W(self.norm(x)).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for W in (self.W_query, self.W_key, self.W_value)
        )
        scores = (q @ k.mT / self.out_proj.in_features**0.5).masked_fill(self.mask[:T, :T], -torch.inf)
        return self.out_proj((self.dropout(scores.softmax(-1)) @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("layer", [Normed, RootMeanSquare])
def test_a_norm_before_the_projections_is_right_and_noted(layer):
    verdict = regard.check(layer)
    assert verdict.mistakes == []
    assert verdict.notes == ["It normalises x before it projects it."]


def test_a_mistake_behind_a_norm_is_named():
    assert [one.name for one in regard.check(WithAWrongScale).mistakes] == ["scale by √d_model"]


def test_several_norms_are_none_that_could_be_told():
    parameters = [
        {"name": f"{n}.weight", "shape": [13], "owner": "torch.nn.modules.normalization.LayerNorm"} for n in "ab"
    ]
    weights = {p["name"]: torch.ones(13) for p in parameters}
    assert find_norm({"parameters": parameters}, weights, 13) is None
    assert find_norm({"parameters": parameters[:1]}, weights, 13).keywords["bias"] is None
    assert find_norm({"parameters": parameters[:1]}, weights, 11) is None


@pytest.mark.parametrize(
    "words", [("requete", "cle", "valeur"), ("zapros", "klyuch", "znachenie"), ("vraag", "sleutel", "waarde")]
)
def test_projections_are_known_by_their_names_in_other_languages(words):
    assert _row([f"w_{word}" for word in (*words, "aus")]) == tuple(f"w_{word}" for word in words)


class MultiQuery(nn.Module):
    """One weight for the queries of all heads, and one head of keys and values."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.sizes = heads, [dim, dim // heads, dim // heads]
        self.fused, self.dense = nn.Linear(dim, sum(self.sizes)), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.fused(x).split(self.sizes, dim=-1)
        q = q.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        weights = (q @ k.mT[:, None] / k.shape[-1] ** 0.5).softmax(-1)
        return self.dense((weights @ v[:, None]).transpose(1, 2).flatten(2))


def test_one_head_of_keys_may_be_packed_with_all_queries():
    assert regard.check(MultiQuery).is_right


def test_keys_and_values_in_a_list_of_two_are_told_apart():
    module = linears(q=(13, 21), o=(21, 21))
    module.kv = nn.ModuleList([nn.Linear(13, 21), nn.Linear(13, 21)])
    (one,) = read(module)
    assert torch.equal(one.projections["W_key"].weight, module.kv[0].weight)
    assert torch.equal(one.projections["W_value"].weight, module.kv[1].weight)
