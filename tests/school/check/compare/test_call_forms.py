import torch

from regard.school.check.compare.call_forms import (
    LAYOUTS,
    MORE_LAYOUTS,
    CallForm,
    call_forms,
    choices_of_values,
    inputs,
    mask_argument,
    mask_forms,
    other_inputs,
)


def described(*required, **optional):
    kinds = {"kind": "POSITIONAL_OR_KEYWORD", "default": None}
    return {
        "call": [{"name": n, "required": True, **kinds} for n in required]
        + [{"name": n, "required": False, **kinds} for n in optional]
    }


def test_every_required_argument_is_x():
    assert [way.args for way in call_forms(described("query", "key", "value"), [], ["batch first"])] == [
        ("x", "x", "x")
    ]


def test_key_and_value_that_may_be_left_out_are_x_too():
    way = next(call_forms(described("query", key=None, value=None), [], ["batch first"]))
    assert way.args == ("x", "x", "x")


def test_a_mask_is_passed_by_its_name_in_each_form():
    ways = list(call_forms(described("x", mask=None), ["True = may attend", "True = hidden"], ["batch first"]))
    assert [way.kwargs for way in ways] == [{"mask": "True = may attend"}, {"mask": "True = hidden"}]
    assert mask_argument(described("x", attn_mask=None)) == "attn_mask"


def test_a_mask_that_is_required_is_none_where_there_is_none():
    assert next(call_forms(described("x", "mask"), [], ["batch first"])).args == ("x", {"value": None})


def test_masks_say_the_same_in_every_form():
    visible = torch.ones(3, 3, dtype=torch.bool).tril()
    forms = mask_forms(visible, torch.float64, 2)
    assert forms["True = hidden"].equal(~visible)
    assert forms["added to the scores"].exp().equal(visible.double())
    assert forms["1 = may attend, (1, 1, T, T)"].shape == (1, 1, 3, 3)
    assert forms["1 = hidden, (B, T, T)"].shape == (2, 3, 3)


def test_an_output_is_brought_to_batch_first():
    x = torch.randn(2, 5, 7)
    named = inputs(x)
    for layout, name in (("tokens first", "x, tokens first"), ("one text", "x, one text"), ("batch first", "x")):
        outs = CallForm(("x",), {}, layout).outputs([torch.zeros(1), named[name]], 2, 5)
        assert outs[0].equal(x[:1] if layout == "one text" else x)
    heads = torch.randn(2, 3, 5, 7)
    assert CallForm(("q",), {}, "heads apart").outputs([heads], 2, 5)[0].equal(heads.transpose(1, 2).flatten(2))
    behind = CallForm(("q",), {}, "heads apart", returns="heads behind")
    assert behind.outputs([heads.transpose(1, 2)], 2, 5)[0].equal(heads.transpose(1, 2).flatten(2))


def test_of_several_tensors_of_one_shape_only_the_first_is_the_output():
    weights, out, guess = torch.zeros(2, 5, 5), torch.ones(2, 5, 7), torch.full((2, 5, 7), 3.0)
    found = CallForm(("x",)).outputs([weights, out, guess, out.long()], 2, 5)
    assert [one is other for one, other in zip(found, (weights, out), strict=True)] == [True, True]


def test_every_layout_of_x_comes_back_as_batch_first():
    x = torch.randn(2, 6, 7)
    named = inputs(x)
    for layout in (*LAYOUTS, *MORE_LAYOUTS):
        name = "x" if layout == LAYOUTS[0] else f"x, {layout}"
        (out,) = CallForm((name,), {}, layout).outputs([named[name]], 2, 6)
        assert out.equal(x[:1] if layout == "one text" else x), layout
    assert named["x, image, channels first"].shape == (2, 7, 2, 3)


def test_what_forward_requires_beside_x_is_known_by_its_name():
    way = next(call_forms(described("x", "freqs_cis", "lengths", "start_pos", "memory"), [], ["batch first"]))
    assert way.args == ("x", "freqs_cis", {"value": None}, {"value": 0}, "x")
    assert set(way.names) == {"x", "freqs_cis"}


def test_values_that_are_tried_start_with_the_likeliest():
    choices = list(choices_of_values(described("x", "adj")))
    assert choices[:2] == [{"adj": {"value": None}}, {"adj": "shows: True"}]
    assert list(choices_of_values(described("x", memory=None)))[-1] == {"memory": "x"}


def test_other_inputs_change_nothing():
    others = other_inputs(torch.zeros(2, 5, 8, dtype=torch.float64), 4)
    assert others["freqs_cis"].equal(torch.ones(5, 2, dtype=torch.complex128))
    assert others["shows: False, (B, T)"].equal(torch.zeros(2, 5, dtype=torch.bool))
    assert others["lengths"].tolist() == [5, 5]
