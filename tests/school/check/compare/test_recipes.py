import pytest
import torch
from torch import nn

from regard.school.check.check import check
from regard.school.check.compare.call_forms import LAYOUTS
from regard.school.check.compare.recipes import LayerRecipe, find_recipe, is_searched, known_recipe
from regard.school.check.learner_code.protocol import Failure
from regard.school.check.learner_code.subject import LocalSubject
from regard.school.check.request import Request
from school.check.learner import checked


class Heads(nn.Module):
    """x (B, T, E), in heads, with four nn.Linear."""

    def __init__(self, width, heads, head_dim=None):
        super().__init__()
        self.heads = heads
        inner = heads * (head_dim or width // heads)
        self.q, self.k, self.v = (nn.Linear(width, inner) for _ in range(3))
        self.out = nn.Linear(inner, width)

    def attend(self, x, hidden=None):
        q, k, v = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores if hidden is None else scores.masked_fill(hidden, -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def forward(self, x):
        return self.attend(x)


class Unknown(Heads):
    def __init__(self, foo, bar):
        super().__init__(foo, bar)


class WidthOfHeads(Heads):
    def __init__(self, foo, bar, baz):
        super().__init__(foo, bar, baz)


class Chosen(Heads):
    def __init__(self, dim, n, mode):
        assert mode in ("fast", "slow")
        super().__init__(dim, n)


class Image(Heads):
    def forward(self, img):
        B, C, rows, columns = img.shape
        return self.attend(img.flatten(2).mT).mT.reshape(B, C, rows, columns)


class Columns(Heads):
    def forward(self, x):
        B, N = x.shape[0], x.shape[2]
        return self.attend(x.transpose(1, 2).flatten(0, 1)).unflatten(0, (B, N)).transpose(1, 2)


class Padding(Heads):
    def forward(self, x, is_pad):
        return self.attend(x, is_pad[:, None, None, :])


class Mask(Heads):
    def forward(self, x, mask, n_rows, positions):
        assert positions.shape == x.shape[1:2]
        return self.attend(x, ~mask)


class Source(Heads):
    def forward(self, x, memory=None):
        return self.attend(memory)


class Windows(Heads):
    def forward(self, x):
        assert x.shape[1] % 4 == 0
        return self.attend(x)


class Config(Heads):
    def __init__(self, config):
        assert config.rate == 0.25
        super().__init__(config["dim"], config.n_head)


class OnlyFloat32(Heads):
    def __init__(self, dim, n):
        super().__init__(dim, n)

    def forward(self, x):
        return self.attend(x * torch.ones(x.shape[-1])) if x.dtype == torch.float32 else self.attend(x.float())


class Lazy(Heads):
    def __init__(self, width, heads):
        super().__init__(width, heads)
        self.q = nn.LazyLinear(width)


RIGHT = [Unknown, WidthOfHeads, Chosen, Image, Columns, Padding, Mask, Source, Windows, Lazy]


@pytest.mark.parametrize("layer", RIGHT, ids=lambda one: one.__name__)
def test_a_right_layer_is_right_however_it_is_built_and_called(layer):
    assert check(layer).is_right


def recipe(layer, **own):
    return find_recipe(LocalSubject(layer), Request(own=own))


def test_a_number_of_heads_is_told_from_the_width_of_a_head():
    assert recipe(Unknown).roles == {"foo": "d_model", "bar": "num_heads"}
    assert recipe(WidthOfHeads).roles == {"foo": "d_model", "bar": "num_heads", "baz": "head_dim"}
    assert check(Unknown).sizes == {"foo": 21, "bar": 3}


def test_every_layout_that_runs_is_kept_and_usual_ones_come_first():
    assert recipe(Unknown).layouts == LAYOUTS
    assert "columns of an image" in recipe(Columns).layouts
    assert recipe(Windows).is_square


def test_what_a_mask_means_is_left_open_unless_the_text_says_it():
    assert len(recipe(Padding).choices) == 2


def test_a_value_of_the_learners_has_a_role_too():
    assert recipe(Unknown, bar=4).roles == {"foo": "d_model", "bar": "num_heads"}
    assert check(Unknown, arguments={"bar": 4}).sizes == {"foo": 28, "bar": 4}


def test_names_that_run_are_not_overruled():
    class Joined(Heads):
        def forward(self, x):
            return torch.cat([self.attend(x)] * self.heads, dim=1)

    assert recipe(Joined).roles["heads"] == "num_heads"
    assert "It returns (2, 15, 21)" in check(Joined).mistakes[0].says


def test_an_exception_that_no_argument_causes_is_a_finding():
    class Typo(Unknown):
        def forward(self, x):
            return self.atend(x)

    assert recipe(Typo).failure.type == "AttributeError"
    (finding,) = check(Typo).mistakes
    assert (finding.name, "There is self.attend: is that meant?" in finding.says) == ("unknown attribute", True)


def test_a_layer_that_refuses_everything_is_not_wrong():
    class Refuses(Heads):
        def forward(self, x):
            raise ValueError("not like this")

    verdict = check(Refuses)
    assert verdict.status == "unchecked"
    assert "it refuses everything that was tried: ValueError: not like this" in verdict.problem


def test_only_what_a_class_raises_itself_is_a_refusal():
    source = "x = 1\nassert x == 2"
    assert LayerRecipe().is_refused(Failure("AssertionError", "", 2), source)
    assert not LayerRecipe().is_refused(Failure("RuntimeError", "shapes", 1), source)
    assert not LayerRecipe(is_confirmed=True).is_refused(Failure("AssertionError", "", 2), source)


def test_a_recipe_is_sought_once():
    subject = LocalSubject(Unknown)
    assert not is_searched(subject)
    assert known_recipe(subject) == LayerRecipe()
    assert find_recipe(subject, Request()) is find_recipe(subject, Request())
    assert is_searched(subject)


def test_a_layer_that_insists_on_float32_is_compared_in_float32_and_told_of_the_others():
    assert [one.name for one in check(OnlyFloat32).mistakes] == ["fails in other dtypes"]


class WithoutSelf(Heads):
    def __init__(self, razmer, golovy):
        super().__init__(razmer, golovy)

    def divided(t):
        return t

    def forward(self, x):
        return self.attend(self.divided(x))


class NotTransposed(Heads):
    def __init__(self, text_dim, image_dim):
        super().__init__(text_dim, 1)

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        return (q @ k).softmax(-1) @ v


class OneHeadOnly(Heads):
    def __init__(self, n_tou, d_mo):
        super().__init__(d_mo, n_tou)

    def forward(self, x):
        q, k, v = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return self.out(y.transpose(1, 2).view(x.shape))


def test_a_layer_that_fails_with_several_heads_is_not_right_with_one():
    assert [one.name for one in check(OneHeadOnly).mistakes] == ["view of a non-contiguous tensor"]


def test_what_no_size_can_mend_is_a_finding_though_the_arguments_are_guessed():
    assert [one.name for one in check(WithoutSelf).mistakes] == ["wrong number of arguments"]
    assert [one.name for one in check(NotTransposed).mistakes] == ["keys not transposed"]


DRAWN = '''import numpy as np


class Drawn:
    """In NumPy, with weights that a generator draws, and biases beside them."""

    def __init__(self, d_model, n_heads, rng):
        self.n_heads = n_heads
        self.W = {name: rng.normal(0, 1, (d_model, d_model)) for name in "qkvo"}
        self.b = {name: rng.normal(0, 1, d_model) for name in "qkvo"}

    def forward(self, x):
        B, T, E = x.shape
        q, k, v = (
            (x @ self.W[name] + self.b[name]).reshape(B, T, self.n_heads, -1).transpose(0, 2, 1, 3) for name in "qkv"
        )
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(E // self.n_heads)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return (weights @ v).transpose(0, 2, 1, 3).reshape(B, T, E) @ self.W["o"] + self.b["o"]
'''


def test_a_generator_of_random_numbers_is_no_configuration(tmp_path):
    assert checked(DRAWN, tmp_path).is_right


def test_what_runs_with_one_head_only_fails_by_itself():
    class Viewed(Unknown):
        def forward(self, x):
            y = self.attend(x)
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2).contiguous().transpose(1, 2).view(y.shape)

    assert [one.name for one in check(Viewed).mistakes] == ["view of a non-contiguous tensor"]
