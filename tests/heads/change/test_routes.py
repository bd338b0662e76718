"""Routes: their products, the rollout they add up to, and the cut that removes one."""

import itertools

import pytest
import torch

import regard
from regard.heads.change.routes import routes

ALICE = "Alice was beginning to get very tired, and Alice was beginning to get very tired."


def seen_of(layers=3, H=2, T=5, seed=3):
    """A stack of causal layers that has read random vectors."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(*(regard.MultiHeadAttention(14, 14, None, 0.0, H) for _ in range(layers))).eval()
    x = 5 * torch.randn(2, T, 14)
    with torch.no_grad(), regard.watch(model) as seen:
        model(x)
    return seen, model, x


def every_route(seen, start, end, by, text):
    """All routes by definition: every sequence of tokens, and the product of its steps."""
    T = seen.sizes()[0][0][2]
    weights = [layer.weights(text=text)[0].double() for layer in seen]
    found = []
    for between in itertools.product(range(T), repeat=len(weights) - 1):
        tokens, strength = (start, *between, end), 1.0
        for one, key, query in zip(weights, tokens, tokens[1:], strict=False):
            stays = key == query
            if by == "mean":
                strength *= float(one[:, query, key].mean()) / 2 + stays / 2
            else:
                strength *= 1.0 if stays else float(one[:, query, key].max())
        if strength:
            found.append((strength, tokens))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("by", ["heads", "mean"])
def test_the_strongest_routes_are_those_of_all_sequences_of_tokens(by):
    seen, _, _ = seen_of()
    for start, end in ((0, 4), (2, 4), (3, 3)):
        wanted = every_route(seen, start, end, by, 1)[:7]
        found = routes(seen, start, end, count=7, by=by, text=1)
        assert [one.tokens for one in found] == [tokens for _, tokens in wanted]
        torch.testing.assert_close(
            torch.tensor([one.strength for one in found]), torch.tensor([strength for strength, _ in wanted])
        )


def test_shares_of_all_routes_add_up_to_1_and_their_strengths_to_the_rollout():
    seen, _, _ = seen_of()
    found = routes(seen, 1, 4, count=25, by="mean", text=0)
    assert sum(one.share for one in found) == pytest.approx(1)
    assert sum(one.strength for one in found) == pytest.approx(float(seen.rollout(4, text=0)[0, 0, 1]))


def test_a_token_that_comes_later_reaches_nothing():
    seen, _, _ = seen_of()
    assert routes(seen, 4, 2) == []


def test_moves_name_the_head_that_gives_most():
    seen, _, _ = seen_of()
    for move in routes(seen, 0, 4, text=1)[1].moves:
        weights = seen[move.layer].weights(text=1)[0, :, move.query, move.key]
        assert move.head == int(weights.argmax())
        assert move.weight == pytest.approx(float(weights.max()))


@pytest.mark.parametrize("by", ["heads", "mean"])
def test_a_cut_removes_the_weights_of_a_route_and_no_other_of_these_heads(by):
    seen, model, x = seen_of()
    best = next(one for one in routes(seen, 1, 4, by=by) if len(one.moves) == 2)
    with torch.no_grad(), best.cut(model), regard.watch(model) as after:
        model(x)
    heads = range(2)
    for move in best.moves:
        weights = after[move.layer].weights(text=0)[0, :, move.query, move.key]
        assert [float(weights[head]) == 0 for head in heads] == [by == "mean" or head == move.head for head in heads]
        others = after[move.layer].weights(text=0)[0, :, move.query].sum(-1)
        torch.testing.assert_close(others, torch.ones(2))


def test_words_are_tokens_and_the_induction_circuit_is_the_strongest_way_round():
    model = regard.GPT.from_pretrained("tiny")
    ids = torch.tensor([model.tokenizer.encode(ALICE)])
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    best = routes(seen, "beginning@3", "beginning@13")[0]
    assert [(move.layer, move.head) for move in best.moves] == [(0, 2), (4, 3)]


def test_what_is_no_route_is_refused():
    seen, _, _ = seen_of()
    with pytest.raises(ValueError, match='by=\'sum\' is not known; routes go by="heads" or by="mean"'):
        routes(seen, 0, 1, by="sum")
    with pytest.raises(ValueError, match=r"start is one token and \[0, 1\] is 2; name one of them: \[0, 1\]"):
        routes(seen, [0, 1], 2)
    with pytest.raises(ValueError, match="text 2 does not exist: there are 2, 0 to 1"):
        routes(seen, 0, 1, text=2)
    across = torch.nn.MultiheadAttention(6, 2, batch_first=True)
    with torch.no_grad(), regard.watch(across) as seen:
        across(torch.randn(1, 3, 6), torch.randn(1, 5, 6), torch.randn(1, 5, 6))
    with pytest.raises(ValueError, match=r"routes need layers in which one text attends to itself.*these are 0: 3 × 5"):
        routes(seen, 0, 1)
