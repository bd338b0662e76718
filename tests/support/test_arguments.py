"""Argument checks that layers share: the rule, the values and the remedy."""

import copy
import inspect
import pickle
import re

import numpy as np
import pytest
import torch

import regard
from regard import ladder
from regard.support import arguments


@pytest.mark.parametrize("size", [0, -1, True, 2.0, "3"])
def test_a_size_must_be_a_whole_number_of_at_least_one(size, without_shape_checks):
    with pytest.raises(ValueError, match=rf"d_in \({size}\) must be a whole number of at least 1"):
        arguments.check_whole(d_out=7, d_in=size)


def test_heads_that_do_not_divide_the_width_say_which_widths_and_heads_would():
    arguments.check_heads(768, 12)
    with pytest.raises(
        ValueError, match=r"d_out \(770\) must be divisible by num_heads \(12\); try 768 or 780, or 11, 14 or 22 heads$"
    ):
        arguments.check_heads(770, 12)
    with pytest.raises(ValueError, match=r"d_out \(5\) must be divisible by num_heads \(7\); try 7, or 5 heads$"):
        arguments.check_heads(5, 7)
    with pytest.raises(ValueError, match=r"d_out \(1\) must be divisible by num_heads \(2\); try 2, or 1 head$"):
        arguments.check_heads(1, 2)


def test_a_width_of_two_billion_is_answered_at_once():
    assert arguments.near_divisors(2**31 - 1, 7) == "1 or 2147483647"


@pytest.mark.parametrize(("width", "heads"), [(768, 7), (770, 12), (13, 5), (5, 12), (1600, 24)])
def test_every_number_of_heads_that_is_offered_divides_the_width(width, heads):
    offered = [int(n) for n in arguments.near_divisors(width, heads).replace(" or", ",").split(",")]
    assert offered == sorted(offered)
    assert all(width % n == 0 for n in offered)
    assert not any(width % n == 0 for n in range(max([n for n in offered if n < heads]) + 1, heads))


@pytest.mark.parametrize("share", [-0.1, 1.0, True, float("nan")])
def test_a_share_is_at_least_zero_and_below_one(share, without_shape_checks):
    with pytest.raises(ValueError, match=rf"repeat \({share}\) must be at least 0 and below 1; 0.1 is usual"):
        arguments.check_share("repeat", share, "0.1 is usual")


def test_tensors_are_described_in_messages():
    assert arguments.describe_tensor(torch.ones(2, 3, dtype=torch.bool)) == "bool of shape (2, 3)"
    assert arguments.name_of(torch.bfloat16) == "bfloat16"
    assert arguments.list_few(torch.arange(9)) == "0, 1, 2, 3, 4, 5, …"
    assert arguments.list_few(torch.tensor([5, 3])) == "5, 3"


def test_only_whole_numbers_are_integers():
    kinds = {torch.int32: True, torch.uint8: True, torch.bool: False, torch.float16: False, torch.complex64: False}
    assert {dtype: arguments.is_integer(torch.zeros(1, dtype=dtype)) for dtype in kinds} == kinds


def test_the_dtype_of_autocast_is_known_where_it_is_on():
    assert arguments.autocast_dtype("cpu") is None
    assert arguments.autocast_dtype("meta") is None
    with torch.autocast("cpu", torch.bfloat16):
        assert arguments.autocast_dtype("cpu") is torch.bfloat16


TAKES = "MultiHeadAttention takes (d_in, d_out, context_length, dropout, num_heads), but was called with "
WRITE = "write MultiHeadAttention(d_in=21, d_out=21, context_length=1024, dropout=0.0, num_heads=7)"
OTHER_CALLS = {
    "by position": ((21, 7), {}, f"(21, 7); (d_model=21, num_heads=7) is another layer's order; {WRITE}"),
    "with dropout": (
        (21, 7, 0.1),
        {},
        f"(21, 7, 0.1); (d_model=21, num_heads=7) is another layer's order; {WRITE.replace('0.0', '0.1')}",
    ),
    "d_model": (
        (),
        {"d_model": 21, "num_heads": 7},
        f"(d_model=21, num_heads=7); d_model is d_in and d_out here; {WRITE}",
    ),
    "torch.nn": (
        (),
        {"embed_dim": 21, "num_heads": 7, "bias": True, "batch_first": True},
        "(embed_dim=21, num_heads=7, bias=True, batch_first=True); embed_dim is d_in and d_out here; "
        "bias is qkv_bias here; batch_first is left out, because x is always (B, T, d_in); "
        f"{WRITE[:-1]}, qkv_bias=True)",
    ),
    "transformers": (
        (),
        {"hidden_size": 21, "num_attention_heads": 7, "max_position_embeddings": 13, "attention_dropout": 0.1},
        "(hidden_size=21, num_attention_heads=7, max_position_embeddings=13, attention_dropout=0.1); "
        "hidden_size is d_in and d_out here; num_attention_heads is num_heads here; "
        "max_position_embeddings is context_length here; attention_dropout is dropout here; "
        f"{WRITE.replace('1024', '13').replace('0.0', '0.1')}",
    ),
    "a preset": (
        (),
        {"num_layers": 2, "d_model": 21, "n_heads": 7, "head_dim": 3},
        "(num_layers=2, d_model=21, n_heads=7, head_dim=3); num_layers is left out, because it belongs to a model, "
        "not to one layer; d_model is d_in and d_out here; n_heads is num_heads here; "
        f"head_dim is left out, because it is d_out / num_heads; {WRITE}",
    ),
    "a slip": ((21,), {"numheads": 7}, f"(21, numheads=7); numheads is num_heads here; {WRITE}"),
    "unknown": (
        (21, 21),
        {"num_heads": 7, "zeal": "x"},
        f"(21, 21, num_heads=7, zeal='x'); there is no zeal here; {WRITE}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_CALLS)
def test_a_call_in_the_words_of_another_text_is_answered_in_ours(name):
    args, kwargs, message = OTHER_CALLS[name]
    with pytest.raises(TypeError, match=f"^{re.escape(TAKES + message)}$"):
        ladder.MultiHeadAttention(*args, **kwargs)
    with pytest.raises(TypeError, match=f"^{re.escape(TAKES + message)}; it hides the future unless causal=False$"):
        regard.MultiHeadAttention(*args, **kwargs)


@pytest.mark.parametrize("name", OTHER_CALLS)
def test_the_call_in_the_answer_works(name):
    message = OTHER_CALLS[name][2]
    call = message[message.index("MultiHeadAttention(") :]
    assert eval(call, {"MultiHeadAttention": ladder.MultiHeadAttention}).num_heads == 7


@pytest.mark.parametrize("layer", [ladder.MultiHeadAttention, regard.MultiHeadAttention], ids=["ladder", "layer"])
def test_arguments_that_are_missing_are_left_to_fill_in(layer):
    message = re.escape(
        f"{TAKES}(); write MultiHeadAttention(d_in=…, d_out=…, context_length=1024, dropout=0.0, num_heads=…)"
    )
    with pytest.raises(TypeError, match=f"^{message}$"):
        layer()
    message = re.escape(
        "(21, None, 0.0, 7); write MultiHeadAttention(d_in=21, d_out=None, context_length=0.0, dropout=7, num_heads=…)"
    )
    with pytest.raises(TypeError, match=message):
        layer(21, None, 0.0, 7)


def test_options_of_the_layer_to_ship_are_known_by_other_names_too():
    message = (
        r"n_kv_heads is num_kv_heads here; is_causal is causal here; "
        r"write .*, num_heads=6, causal=False, num_kv_heads=2\)$"
    )
    with pytest.raises(TypeError, match=message):
        regard.MultiHeadAttention(18, 18, 5, 0.0, 6, n_kv_heads=2, is_causal=False)
    with pytest.raises(TypeError, match=r"there is no is_causal here; write .*, num_heads=6\)$"):
        ladder.MultiHeadAttention(18, 18, 5, 0.0, 6, is_causal=False)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((6, 6, 5, 0.0, 2, False, True), {}, "positional arguments"),
        ((6, 6, 5, 0.0, 2), {"d_in": 6}, "multiple values for argument 'd_in'"),
    ],
)
def test_any_other_wrong_call_keeps_pythons_error(args, kwargs, message):
    with pytest.raises(TypeError, match=message):
        ladder.MultiHeadAttention(*args, **kwargs)


def test_an_error_from_inside_a_constructor_is_left_as_it_is():
    class Broken:
        @arguments.explain_wrong_call
        def __init__(self, d_in):
            self.size = d_in + "a"

    with pytest.raises(TypeError, match="unsupported operand"):
        Broken(3)


def test_a_constructor_keeps_its_signature_and_can_be_copied_pickled_and_inherited():
    class Wider(ladder.MultiHeadAttention):
        def __init__(self, d_out):
            super().__init__(5, d_out, 7, dropout=0.0, num_heads=3)

    names = ["d_in", "d_out", "context_length", "dropout", "num_heads", "qkv_bias"]
    assert list(inspect.signature(ladder.MultiHeadAttention).parameters) == names
    assert list(inspect.signature(regard.MultiHeadAttention).parameters)[:6] == names
    x = torch.randn(2, 3, 5)
    layer = Wider(6)
    torch.testing.assert_close(copy.deepcopy(layer)(x), layer(x))
    shipped = regard.MultiHeadAttention(5, 6, 7, 0.0, 3)
    torch.testing.assert_close(pickle.loads(pickle.dumps(shipped))(x), shipped(x))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1.0]], r"^x must be a tensor, not list; pass torch\.tensor\(x\)$"),
        (np.ones((2, 3)), r"^x must be a tensor, not ndarray; pass torch\.as_tensor\(x\)$"),
    ],
)
def test_what_is_no_tensor_says_how_to_make_one(value, message):
    arguments.check_tensor(y=torch.ones(2))
    with pytest.raises(ValueError, match=message):
        arguments.check_tensor(y=torch.ones(2), x=value)


@pytest.mark.parametrize("x", [torch.ones(2, 5, 6, dtype=torch.long), torch.ones(2, 5, 6, dtype=torch.bool)])
@pytest.mark.parametrize(
    "layer", [regard.MultiHeadAttention(6, 6, 7, 0.0, 2), regard.ladder.SelfAttention(6, 3)], ids=["layer", "ladder"]
)
def test_whole_numbers_say_how_to_become_floating_point(layer, x, without_shape_checks):
    dtype = arguments.name_of(x.dtype)
    message = (
        rf"x must hold floating-point numbers, but is {dtype} of shape \(2, 5, 6\); use x.float\(\), or nn.Embedding"
    )
    with pytest.raises(ValueError, match=message):
        layer(x)
    layer(x.float())


@pytest.mark.parametrize(
    "cls, args, message",
    [
        (
            "SelfAttention",
            (3,),
            r"takes \(d_in, d_out\), but was called with \(3\); write SelfAttention\(d_in=3, d_out=3\)$",
        ),
        (
            "CausalAttention",
            (4, 2),
            r"with \(4, 2\); write CausalAttention\(d_in=4, d_out=2, context_length=1024, dropout",
        ),
        ("MultiHeadAttentionWrapper", (4, 2), r"\(d_model=4, num_heads=2\) is another layer's order; write Multi"),
    ],
)
def test_every_layer_of_the_ladder_answers_a_wrong_call(cls, args, message):
    with pytest.raises(TypeError, match=message):
        getattr(regard.ladder, cls)(*args)
