import pytest

from regard.school.check.learner_code.text_hints import (
    attention_roles,
    has_positions,
    has_window,
    is_batch_first,
    is_known,
    is_tokens_first,
    mask_shows,
    names_positions,
    names_window,
    own_text,
    says_no_future,
    says_tokens_first,
    small_kind,
    with_functions,
)


@pytest.mark.parametrize(
    ("text", "is_first"),
    [
        ("T, B, E = x.shape", True),
        ("tgt_len, bsz, embed_dim = x.size()", True),
        ("frames, batch, features = x.shape", True),
        ("# x: (tokens, batch, width)", True),
        ("nn.MultiheadAttention(8, 2, batch_first=False)", True),
        ("B, T, E = x.shape", False),
        ("b, n, d = x.shape", False),
        ("N, L, E = x.shape", False),
        ("x is a tensor", False),
    ],
)
def test_tokens_stand_first_only_where_the_text_says_so(text, is_first):
    assert is_tokens_first(text, {}) is is_first


def test_torchs_own_layer_takes_tokens_first_unless_the_code_around_it_unpacks_a_batch():
    contents = {"inside": [{"name": "MultiheadAttention"}]}
    assert is_tokens_first("", contents)
    assert not is_tokens_first("B, T, E = x.shape", contents)
    assert is_tokens_first("", {"attributes": {"batch_first": False}})


@pytest.mark.parametrize(
    ("text", "shows"),
    [
        ("# mask: 1.0 for real tokens, 0.0 for padding", True),
        ('"""mask: 1 = may look, 0 = hidden"""', True),
        ("# mask: bool, True = visible", True),
        ("# mask, 0 where a token must not look", True),
        ("# True means hidden", False),
        ("# mask: 1 for tokens and 0 for padding; padding is not attended", True),
        ("# mask: 1 for padding", False),
        ("# mask[b, t] is True if token t of sentence b is padding and has to be ignored", False),
        ("# mask (B, T): 1 for tokens that are NOT padding, 0 for padding tokens", True),
        ("# mask: (B, S) bool, True at the <pad> positions of src", False),
        ("# mask[i, j] = 1 if j is a neighbour of i, otherwise 0", True),
        ("# mask: 0 for real tokens and a large negative number for padding", None),
        ("# attn_mask (S, T) with 0 = may not attend", True),
        ("# mask: 1 = may never look", False),
        ("mask = mask == 0", None),
        ("# mask: 1 = visible\n# True = hidden in the mask", None),
    ],
)
def test_a_comment_says_what_a_mask_means(text, shows):
    assert mask_shows(text) is shows


def test_positions_and_windows_are_known_by_names_in_the_code():
    assert has_positions("self.relative_bias = nn.Embedding(9, 2)")
    assert not has_positions("bias = 2  # relative bias")
    assert has_window("ok = i - j < self.window")
    assert names_positions("distance = i - j")
    assert names_window("a sliding band")


def test_the_text_of_a_class_has_the_comments_above_it_and_not_the_class_before():
    source = "class A:\n    x = 1\n\n# (T, B, E)\nclass B:\n    y = 2\n"
    assert own_text(source, "B") == "\n# (T, B, E)\nclass B:\n    y = 2"
    assert own_text(source, "A") == "class A:\n    x = 1"


@pytest.mark.parametrize("source", ["class A(", "(" * 5000, "x = 1\0"])
def test_text_that_python_cannot_read_is_taken_whole(source):
    assert own_text(source, "A") in (source, "")


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


@pytest.mark.parametrize("said", ["# True = not allowed", "# 1 = cannot be seen", "# True = do not attend"])
def test_a_word_that_hides_counts_before_one_that_shows(said):
    assert mask_shows(f"x = 1  {said} (mask)") is False


def test_the_functions_that_a_class_calls_speak_for_it():
    source = "def used(m):\n    # mask: 1 = seen\n    return m\ndef other():\n    pass\n"
    source += "class A:\n    def f(self): return used(1)\n"
    assert "1 = seen" in with_functions(source, "A")
    assert "pass" not in with_functions(source, "A")


def test_axes_before_the_tokens_are_a_batch():
    assert is_batch_first("# Q: (..., T, d_k)")
    assert not is_batch_first("# Q: (T, d_k)")


def test_zeros_that_come_after_ones_are_the_other_meaning():
    assert mask_shows('"""mask: ones for words of a text and zeros for padding"""') is True


@pytest.mark.parametrize(
    ("text", "is_said"),
    [("never to the future", True), ("a token cannot see the future", True), ("it hides the future", False)],
)
def test_a_text_says_that_no_token_sees_a_later_one(text, is_said):
    assert (says_no_future(text) is not None) is is_said


def test_axes_that_are_unpacked_under_their_full_names_say_which_is_first():
    assert says_tokens_first("frames, batch, width = x.shape")
    assert not says_tokens_first("T, B, E = x.shape")
