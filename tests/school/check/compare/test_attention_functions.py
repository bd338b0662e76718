import inspect
import math

import numpy as np
import pytest
import torch

from regard.school.check.check import check
from regard.school.check.learner_code.text_hints import is_known
from school.check.learner import checked, names


def attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    weights = scores.softmax(-1)
    return weights @ v, weights


def causal_attention(Q, K, V):
    T = Q.shape[-2]
    scores = (Q @ K.mT / Q.shape[-1] ** 0.5).masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
    return scores.softmax(-1) @ V


def numpy_attention(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True)) @ v


def self_attention(x, W_q, W_k, W_v):
    q, k, v = x @ W_q, x @ W_k, x @ W_v
    return torch.softmax(q @ k.mT / k.shape[-1] ** 0.5, -1) @ v


def transposed_weights(x, W_q, W_k, W_v):
    q, k, v = x @ W_q.T, x @ W_k.T, x @ W_v.T
    return torch.softmax(q @ k.mT / k.shape[-1] ** 0.5, -1) @ v


def multi_head(x, W_q, W_k, W_v, W_o, num_heads):
    B, T, _ = x.shape
    q, k, v = ((x @ W).view(B, T, num_heads, -1).transpose(1, 2) for W in (W_q, W_k, W_v))
    y = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v
    return y.transpose(1, 2).reshape(B, T, -1) @ W_o


def simplified_attention(x):
    return (x @ x.mT).softmax(-1) @ x


def attention_of_one_text(x):
    assert x.dim() == 2
    return (x @ x.T).softmax(-1) @ x


def heads_behind(q, k, v):
    scores = torch.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v)


def heads_apart_and_behind(q, k, v):
    return attention(q, k, v)[0].transpose(1, 2)


def heads_of_weights(X, M, P_q, P_k, P_v, P_o):
    Q, K, V = (torch.einsum("btd,hdk->bhtk", t, P) for t, P in ((X, P_q), (M, P_k), (M, P_v)))
    weights = (Q @ K.mT * P_q.shape[-1] ** -0.5).softmax(-1)
    return torch.einsum("bhtv,hdv->btd", weights @ V, P_o)


def banded_attention(q, k, v, radius):
    T = q.shape[-2]
    far = (torch.arange(T)[:, None] - torch.arange(T)).abs() > radius
    return (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(far, -torch.inf).softmax(-1) @ v


RIGHT = [
    *(
        heads_behind,
        heads_apart_and_behind,
        attention,
        causal_attention,
        numpy_attention,
        self_attention,
        transposed_weights,
        multi_head,
    ),
    *(simplified_attention, attention_of_one_text, heads_of_weights, banded_attention),
]


@pytest.mark.parametrize("function", RIGHT, ids=lambda one: one.__name__)
def test_a_right_function_passes(function):
    warned = ["−1e9 overflows in fp16"] if function is attention else []  # it fills with −1e9, and is right otherwise
    assert [one.name for one in check(function).findings] == warned
    assert is_known(function.__name__, list(inspect.signature(function).parameters))


def unscaled_attention(q, k, v):
    return torch.softmax(q @ k.mT, -1) @ v


def masked_late_attention(q, k, v, mask=None):
    weights = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1)
    return (weights if mask is None else weights * mask) @ v


def unscaled_window_attention(q, k, v, window):
    T = q.shape[-2]
    distance = torch.arange(T)[:, None] - torch.arange(T)
    return (q @ k.mT).masked_fill((distance < 0) | (distance >= window), -torch.inf).softmax(-1) @ v


def swapped_attention(x, W_q, W_k, W_v):
    q, k, v = x @ W_q, x @ W_k, x @ W_v
    return torch.softmax(q @ v.mT / k.shape[-1] ** 0.5, -1) @ k


def simplified_attention_over_queries(x):
    return (x @ x.mT).softmax(-2) @ x


def simplified_attention_scaled(x):
    return (x @ x.mT / x.shape[-1] ** 0.5).softmax(-1) @ x


WRONG = {
    unscaled_attention: "no scale",
    unscaled_window_attention: "no scale",
    masked_late_attention: "mask after softmax without renormalising",
    swapped_attention: "q, k, v swapped: the keys are made with W_value and the values are made with W_key",
    simplified_attention_over_queries: "softmax over the queries",
    simplified_attention_scaled: "scaled where nothing is",
}


@pytest.mark.parametrize("function", WRONG, ids=lambda one: one.__name__)
def test_a_wrong_function_is_named(function):
    assert [one.name for one in check(function).mistakes] == [WRONG[function]]


def test_an_argument_that_is_unknown_is_asked_for():
    def attend(q, k, v, groove):
        return q

    assert check(attend).problem == "nothing is known of its argument groove; give a value: arguments={'groove': …}"


def test_a_bias_that_must_be_passed_may_be_none():
    def attention(q, k, v, bias):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        return (scores if bias is None else scores + bias.unsqueeze(0)).softmax(-1) @ v

    assert check(attention).is_right


def test_whether_it_is_causal_is_asked_and_not_invented():
    def attention(q, k, v, causal):
        hidden = torch.ones(q.shape[-2], k.shape[-2]).triu(1).bool() & causal
        return (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(hidden, -torch.inf).softmax(-1) @ v

    verdict = check(attention)
    assert verdict.status == "unchecked"
    assert "nothing is known of its argument causal; give a value: arguments={'causal': …}" in verdict.problem
    assert check(attention, arguments={"causal": True}, causal=True).is_right


def attention_of_params(params, x, n_heads):
    B, T, E = x.shape
    q, k, v = ((x @ params[f"w{name}"]).reshape(B, T, n_heads, -1).swapaxes(1, 2) for name in "qkv")
    weights = torch.softmax(torch.as_tensor(q @ k.swapaxes(2, 3) / q.shape[-1] ** 0.5), -1)
    return (weights @ torch.as_tensor(v)).transpose(1, 2).reshape(B, T, E) @ torch.as_tensor(params["wo"])


def attention_of_heads(p, x):
    q, k, v = (torch.einsum("btd,hde->bhte", x, p[name]) for name in "qkv")
    heads = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v
    return torch.einsum("bhte,hed->btd", heads, p["o"])


def attend(x, to_q, to_k, to_v):
    q, k, v = to_q(x), to_k(x), to_v(x)
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v


def attention_of_lengths(q, k, v, lengths):
    hidden = torch.arange(k.shape[1]) >= lengths[:, None]
    return (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(hidden[:, None], -torch.inf).softmax(-1) @ v


@pytest.mark.parametrize("function", [attention_of_params, attention_of_heads, attend, attention_of_lengths])
def test_weights_may_be_a_dict_or_functions_and_lengths_may_be_asked_for(function):
    assert check(function).is_right


def mha_packed(x, params, n_heads):
    qkv = x @ params["w_qkv"] + params["b_qkv"]
    q, k, v = (t.unflatten(-1, (n_heads, -1)).transpose(1, 2) for t in qkv.chunk(3, -1))
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2) @ params["w_out"] + params["b_out"]


def test_a_dict_may_hold_the_three_projections_in_one_weight():
    assert check(mha_packed).is_right


TAKES = """import torch


def masked_attention(q, k, v, {name}):
    \"\"\"{says}\"\"\"
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    if {argument} is not None:
        {hide}
    return torch.softmax(scores, dim=-1) @ v
"""
VALID = {"name": "valid", "argument": "valid", "says": "valid: broadcasts to (T, T), True = attend."}
BIAS = {"name": "bias=None", "argument": "bias", "says": "bias: additive mask."}
ONES = {"name": "mask=None", "argument": "mask", "says": "mask: 1.0 for real tokens and 0.0 for padding."}


@pytest.mark.parametrize(
    ("takes", "hide", "found"),
    [
        (VALID, "scores = scores.masked_fill(~valid, -torch.inf)", []),
        (VALID, "torch.where(valid, scores, -torch.inf)", ["result not assigned"]),
        (VALID, "scores = scores.masked_fill(valid, -torch.inf)", ["mask polarity inverted"]),
        (BIAS, "scores = scores + bias", []),
        (BIAS, "scores = scores * bias", ["hidden scores set to 0"]),
        (ONES, "scores = scores + (1 - mask) * -1e9", []),
        (ONES, "scores = scores + mask", ["mask added as it is"]),
        (ONES, "return torch.softmax(scores.masked_fill(mask == 0, -1e9), dim=-1) @ v", []),
    ],
)
def test_a_mask_is_what_the_text_calls_one(takes, hide, found, tmp_path):
    verdict = checked(TAKES.format(**takes, hide=hide), tmp_path)
    assert names(verdict) == found
    assert verdict.status != "unchecked"


def test_a_mask_of_another_kind_than_was_tried_is_no_mistake(tmp_path):
    hide = "scores = scores.masked_fill(~valid[:, None, None, :], -torch.inf)"
    verdict = checked(TAKES.format(**{**VALID, "says": "valid: True = real token"}, hide=hide), tmp_path)
    assert verdict.problem.startswith("nothing is known of its argument valid")


def test_an_output_with_a_mask_only_is_a_missing_return(tmp_path):
    source = TAKES.format(**ONES, hide="scores = scores.masked_fill(mask == 0, -1e9)").replace("masked_att", "att")
    inside = source.replace("\n    return", "\n        return")
    assert names(checked(source, tmp_path)) == []
    (finding,) = checked(inside, tmp_path).mistakes
    assert (finding.name, finding.says) == ("no return", "Without mask, it returns no output.")


def attention_of_said_heads(q, k, v):  # (B, H, T, D)
    return heads_behind(q, k, v)


def test_a_function_that_says_where_its_heads_are_is_held_to_it():
    assert [one.name for one in check(attention_of_said_heads).mistakes] == ["split without transpose"]


PICO = """import numpy as np


def linear(x, w, b):
    return x @ w + b


def mha(x, c_attn, c_proj, n_head):
    heads = [np.split(part, n_head, axis=-1) for part in np.split(linear(x, **c_attn), 3, axis=-1)]
    outs = []
    for q, k, v in zip(*heads):
        scores = q @ k.T / np.sqrt(q.shape[-1]) + np.triu(np.full((len(x), len(x)), -1e10), 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        outs.append(weights / weights.sum(-1, keepdims=True) @ v)
    return linear(np.hstack(outs), **c_proj)
"""


def test_weights_in_dicts_with_their_biases_are_passed(tmp_path):
    assert checked(PICO, tmp_path, "mha").is_right
    assert names(checked(PICO.replace(" / np.sqrt(q.shape[-1])", ""), tmp_path, "mha")) == ["no scale"]


def test_a_name_that_is_missing_is_told_before_a_batch_that_does_not_fit(tmp_path):
    source = (
        "def self_attention(x, W_q, W_k, W_v):\n    q, k, v = x @ W_q, x @ W_k, x @ W_v\n    s = q @ k.T / np.sqrt(7)\n"
    )
    verdict = checked(source + "    return np.exp(s) / np.exp(s).sum(-1, keepdims=True) @ v\n", tmp_path)
    assert [(one.name, one.fix) for one in verdict.mistakes] == [("missing import", "import numpy as np")]
