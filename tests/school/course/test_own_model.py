"""Training a learner's own model, in a process of its own."""

from dataclasses import replace

import pytest

from regard.school.course.courses import OWN_COURSE, read_course
from regard.school.course.learner import start_folder
from regard.school.course.own_model import BOOK, OwnRecipe, train_own_model
from regard.school.course.verification import with_definitions

COURSE = read_course(OWN_COURSE)
QUICK = OwnRecipe(merges=3, learned_on=2000, width=8, context=16, batch=4, lists=2, steps=20, every=10, count=9)
JOINED = """
class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.heads, self.drop = num_heads, dropout
        self.qkv = nn.Linear(d_in, 3 * d_out, bias=qkv_bias)
        self.out = nn.Linear(d_out, d_out)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        drop = self.drop if self.training else 0.0
        y = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))
"""
LOOP = """
class Head(nn.Module):
    def __init__(self, d_in, d_out, dropout, bias):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_in, d_out, bias=bias) for _ in range(3))
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = torch.einsum("btd,bsd->bts", self.q(x), self.k(x)) / self.q.out_features**0.5
        return self.drop(scores.masked_fill(hidden, float("-inf")).softmax(2)) @ self.v(x)


class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.heads = nn.ModuleList(Head(d_in, d_out // num_heads, dropout, qkv_bias) for _ in range(num_heads))
        self.mix = nn.Linear(d_out, d_out)

    def forward(self, x):
        return self.mix(torch.cat([head(x) for head in self.heads], dim=-1))
"""
STYLES = {"ten steps": "", "joined and fused": JOINED, "a loop of heads": LOOP}


@pytest.fixture
def folder(tmp_path):
    learner = start_folder(tmp_path / "answers", COURSE)[0]
    for lesson in COURSE.lessons:
        learner.file_of(lesson).write_text(lesson.text("solution.py"))
    return learner


def path_of(learner, name):
    return learner.file_of(COURSE.lesson(name))


@pytest.mark.parametrize("style", STYLES)
def test_a_model_of_any_style_is_trained_and_its_heads_are_watched(folder, style):
    path_of(folder, "whole_layer").write_text(
        with_definitions(COURSE.lesson("whole_layer").text("solution.py"), STYLES[style])
    )
    told = list(train_own_model(path_of(folder, "your_gpt"), QUICK))
    result = told[-1]["result"]
    assert [one["step"] for one in result["curve"]] == [0, 10, 20]
    assert result["curve"][-1]["book"] < result["curve"][0]["book"]
    assert sorted(one["head"] for one in result["heads"]) == ["0.0", "0.1", "1.0", "1.1"]
    assert not any(one["learned"] for one in result["heads"])
    weights = result["picture"]["weights"]
    assert [round(sum(row), 4) for row in weights] == len(result["picture"]["words"]) * [1.0]
    cat = result["picture"]["cat"]
    assert cat["words"] == ["The", "cat", "sat", "on", "the"]  # what fits 16 tokens
    assert [round(sum(row), 4) for row in cat["weights"]] == 5 * [1.0]
    assert result["text"].startswith("Alice ")
    assert [one["step"] for one in told if "step" in one] == [10, 20]


def test_the_same_files_and_seed_make_the_same_model(folder):
    first, second = (list(train_own_model(path_of(folder, "your_gpt"), QUICK))[-1]["result"] for _ in range(2))
    assert first["text"] == second["text"]
    assert first["curve"] == second["curve"]


def test_training_ends_when_its_time_is_up(folder):
    recipe = replace(QUICK, steps=10**6, seconds=1.0)
    result = list(train_own_model(path_of(folder, "your_gpt"), recipe))[-1]["result"]
    assert 0 < result["curve"][-1]["step"] < 10**6


def test_an_error_of_the_learners_code_has_its_file_and_line(folder):
    path = path_of(folder, "training_step")
    path.write_text(path.read_text().replace("    loss.backward()", "    loss.backwards()"))
    told = list(train_own_model(path_of(folder, "your_gpt"), QUICK))[-1]
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if "backwards" in text)
    assert told["error"].startswith(f"{path.name}, line {line}: AttributeError: 'Tensor' object has no attribute")


def test_a_process_that_ends_early_is_an_error_and_what_it_prints_is_nobodys_line(folder):
    path = path_of(folder, "loss")
    path.write_text(path.read_text() + "\nimport os\nprint('{}')\nos._exit(3)\n")
    told = list(train_own_model(path_of(folder, "your_gpt"), QUICK))
    assert told[-1]["error"] == "its process ended: it said nothing"


def test_the_book_is_text_that_everybody_may_use():
    text = BOOK.read_text(encoding="utf-8")
    assert text.startswith("Alice's Adventures in Wonderland\nby Lewis Carroll")
    assert text.isascii()
