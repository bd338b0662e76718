"""What runs in the process of a learner's own model: lists to copy, losses, words, names of heads."""

from types import SimpleNamespace

import pytest
import torch

from regard.school.course.own_model import OwnRecipe
from regard.school.course.own_model_process import OwnModel

TEXT = "the cat and the dog"


@pytest.fixture
def model():
    tokens = SimpleNamespace(decode=lambda ids, merges: "".join(chr(one) for one in ids))
    parts = {
        "tokenize": tokens,
        "loss": SimpleNamespace(cross_entropy=lambda logits, targets: logits.sum() + targets.sum()),
    }
    one = OwnModel(SimpleNamespace(mine=parts.get), OwnRecipe(context=8, batch=7, lists=3), TEXT, print)
    one.merges, one.used = [], torch.tensor([97, 98, 99, 100, 101])
    one.train_ids = torch.arange(500, 540)
    return one


def test_the_head_is_drawn_from_the_last_token_of_a_word_to_all_tokens_of_another(model):
    """A model of single letters whose only head looks evenly back: a word's share is its letters', with the space."""

    class Even(torch.nn.Module):
        def forward(self, ids):
            q = k = torch.zeros(1, 1, ids.shape[1], 2)
            return torch.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True)

    model.model, model.recipe = Even(), OwnRecipe(context=11)  # "The cat sat"
    model.own.mine("tokenize").encode = lambda text, merges: [ord(one) for one in text]
    cat = model.cat(0, 0)
    assert cat["words"] == ["The", "cat", "sat"]
    expected = [[1, 0, 0], [3 / 7, 4 / 7, 0], [3 / 11, 4 / 11, 4 / 11]]
    torch.testing.assert_close(torch.tensor(cat["weights"]), torch.tensor(expected))


def test_a_list_begins_again_after_its_period(model):
    ids = model.lists(5, 21, 7, 7)
    torch.testing.assert_close(ids[:, 7:], ids[:, :-7])
    assert set(ids.flatten().tolist()) == {97, 98, 99, 100, 101}
    assert not torch.equal(ids[:, :3], ids[:, 3:6])


def test_a_batch_has_pages_first_and_then_lists(model):
    ids = model.batch()
    assert ids.shape == (7, 9)
    torch.testing.assert_close(ids[:4].diff(dim=1), torch.ones(4, 8, dtype=torch.long))
    assert int(ids[4:].max()) < 500


def test_the_loss_of_a_list_leaves_out_what_cannot_be_known(model):
    model.model = lambda ids: torch.zeros(*ids.shape, 2)
    assert model.loss(torch.tensor([[1, 2, 3, 4, 5]]), skipped=2) == 4 + 5
    assert model.loss(torch.tensor([[1, 2, 3, 4, 5]])) == 2 + 3 + 4 + 5


@pytest.mark.parametrize(("layers", "name"), [(2, "1.0"), (4, "0.1"), (3, "1.0")])
def test_a_head_that_is_a_layer_by_itself_is_named_by_its_place_in_the_loop(model, layers, name):
    assert model.name_of(layers, 1, 0) == name


def test_the_words_of_the_picture_are_different_and_fit_twice(model):
    words = model.words().tolist()
    assert len(set(words)) == len(words) == 4
