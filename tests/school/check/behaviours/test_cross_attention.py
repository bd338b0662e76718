import pytest

from school.check.learner import broken, checked, names

SOURCE, READ = "source = x if context is None else context", "(self.q(x), self.k(source), self.v(source))"
NEEDS = ("x, context=None", "x, context", SOURCE, "source = context")
SCORES = "scores = q @ k.mT / math.sqrt(self.head_dim)\n"
WRONG = [
    ((SOURCE, "source = x"), "context ignored"),
    ((SOURCE, "source = x if context is None else context[:, : x.shape[1]]"), "context cut to the length of x"),
    ((*NEEDS[:2], SOURCE, "source = torch.cat([context, x], 1)"), "x joined to the context"),
    ((*NEEDS[:2], SOURCE, "source, x = x, context"), "roles of x and context swapped"),
    ((*NEEDS, READ, "(self.q(x), self.k(source), self.v(x))"), "values of x instead of the context"),
    ((*NEEDS, SCORES, SCORES + "        k = k.reshape(B, -1, T, self.head_dim)\n"), "context of another length fails"),
    (
        (
            *NEEDS,
            SCORES,
            SCORES + "        scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -torch.inf)\n",
        ),
        "causal mask over the context",
    ),
]
QKV = ("x, context=None", "query, key, value", f"        {SOURCE}\n", "        x = query\n")


@pytest.mark.parametrize(("edits", "name"), WRONG, ids=[name for _, name in WRONG])
def test_what_is_made_of_the_wrong_text_is_named(edits, name, tmp_path):
    assert names(broken(tmp_path, *edits)) == [name]


@pytest.mark.parametrize("context", ["memory", "encoder_hidden_states", "kv"])
def test_a_context_that_is_required_is_right_whatever_its_name(context, tmp_path):
    verdict = broken(tmp_path, "x, context=None", f"x, {context}", SOURCE, f"source = {context}")
    assert verdict.is_right
    assert "cross-attention" in verdict.checked


def test_the_context_may_come_first(tmp_path):
    assert broken(tmp_path, "x, context=None", "context, x", SOURCE, "source = context").is_right


def test_queries_keys_and_values_of_their_own_are_not_confused(tmp_path):
    assert broken(tmp_path, *QKV, READ, "(self.q(x), self.k(key), self.v(value))").is_right
    assert names(broken(tmp_path, *QKV, READ, "(self.q(x), self.k(value), self.v(value))")) == [
        "key and value confused"
    ]


def test_latents_that_are_joined_to_the_context_are_right(tmp_path):
    joined = (*NEEDS[:2], SOURCE, "source = torch.cat([context, x], 1)  # as in the Perceiver")
    assert names(broken(tmp_path, *joined)) == []


def test_a_second_argument_of_unknown_meaning_is_not_checked(tmp_path):
    verdict = broken(tmp_path, "x, context=None", "x, z", SOURCE, "source = x")
    assert names(verdict) == []
    says = "no name says what its second argument is"
    assert verdict.not_checked == [f"cross-attention: {says}", f"padding: {says}"]


def test_a_causal_layer_hides_nothing_of_a_context(tmp_path):
    hides = "        future = torch.ones_like(scores).triu(1) > 0\n"
    hides += "        if context is None:\n            scores = scores.masked_fill(future, -1e30)\n"
    assert names(broken(tmp_path, SCORES, SCORES + hides)) == []
    always = hides.replace("if context is None", "if True")
    assert names(broken(tmp_path, SCORES, SCORES + always)) == []  # a context may go along with x
    encoded = (
        "context=None",
        "memory=None",
        SOURCE,
        "source = x if memory is None else memory",
        SCORES,
        SCORES + always,
    )
    assert names(broken(tmp_path, *encoded)) == ["causal mask over the context"]


UNNAMED = ("x, context=None", "ziel, quelle", SOURCE, "x, source = ziel, quelle")


def test_arguments_whose_names_say_nothing_are_told_by_the_output(tmp_path):
    assert broken(tmp_path, *UNNAMED).is_right
    joined = broken(tmp_path, *UNNAMED, "ziel, quelle\n", "ziel, torch.cat([quelle, ziel], 1)\n")
    assert names(joined) == ["x joined to the context"]
    verdict = broken(tmp_path, *UNNAMED, READ, "(self.q(x), self.k(source), self.v(x))")
    assert names(verdict) == ["values of x instead of the context"]


ONE_TEXT = """import numpy as np

class CrossAttention:
    def __init__(self, d, d_head):
        self.Wq, self.Wk, self.Wv = (np.random.randn(d, d_head) for _ in range(3))

    def __call__(self, x, contexte):
        q, k, v = x @ self.Wq, contexte @ self.Wk, contexte @ self.Wv
        scores = q @ k.T / np.sqrt(q.shape[-1])
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v
"""


def test_a_context_of_one_text_is_tried(tmp_path):
    assert checked(ONE_TEXT, tmp_path).is_right
    verdict = checked(ONE_TEXT.replace("contexte @ self.Wk", "x @ self.Wk"), tmp_path)
    assert names(verdict) == ["keys of x instead of the context"]


def test_a_function_takes_more_keys_than_queries_where_it_speaks_of_two_lengths(tmp_path):
    source = "import torch\n\ndef attention(q, k, v):\n    # q (B, T, D), k and v (B, S, D)\n    B, T, D = q.shape\n"
    source += "    return (q @ k.view(B, T, D).mT / D**0.5).softmax(-1) @ v\n"
    assert names(checked(source, tmp_path)) == ["context of another length fails"]
    assert checked(source.replace("view(B, T, D)", "view(B, -1, D)"), tmp_path).findings == []
    one = checked(source.replace("(B, S, D)", "(B, T, D)"), tmp_path)
    assert [each.name for each in one.warnings] == ["context of another length fails"]
    cut = source.replace("k.view(B, T, D).mT", "k[:, :T].mT").replace("@ v", "@ v[:, :T]")
    assert names(checked(cut.replace("(B, S, D)", "(B, T, D)"), tmp_path)) == ["context of another length fails"]


def test_a_text_that_takes_the_place_of_x_is_a_context_whatever_its_name(tmp_path):
    image = ("x, context=None", "x, bild=None", SOURCE, "source = x if bild is None else bild")
    assert "cross-attention" in broken(tmp_path, *image).checked
    verdict = broken(tmp_path, *image, READ, "(self.q(x), self.k(source), self.v(x))")
    assert names(verdict) == ["values of x instead of the context"]


@pytest.mark.parametrize(
    ("second", "text", "found"),
    [
        ("memoria", "", ["roles of x and context swapped"]),
        ("regions", "x (B, T, d), regions (B, R, d) -> (B, T, d)", ["roles of x and context swapped"]),
        ("regions", "x (B, T, d), regions (B, R, d) -> (B, R, d)", []),
        ("regions", "", []),
    ],
)
def test_an_output_as_long_as_the_context_is_wrong_where_a_name_or_the_axes_say_so(second, text, found, tmp_path):
    edits = ("x, context=None", f"x, {second}", SOURCE, f"source, x = x, {second}")
    documented = ("class Attention(nn.Module):\n", f'class Attention(nn.Module):\n    """{text}"""\n')
    assert names(broken(tmp_path, *edits, *documented)) == found
