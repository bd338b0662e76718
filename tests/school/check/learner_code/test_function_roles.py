from regard.school.check.learner_code.function_roles import attention_roles, is_known, small_kind


def test_small_functions_are_known_by_their_names():
    assert small_kind("create_causal_mask", ["size"]) == "mask"
    assert small_kind("apply_mask", ["scores"]) == ""
    assert small_kind("attention", ["q", "k", "v"]) == ""


def test_arguments_of_attention_are_known_by_their_names():
    assert attention_roles(["query", "key", "value", "p"], "f") == {"query": "q", "key": "k", "value": "v"}
    assert attention_roles(["a", "b"], "attention") is None


def test_other_functions_are_not_known():
    assert is_known("softmax", ["x"])
    assert not is_known("helper", ["a", "b"])
