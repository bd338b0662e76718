"""Roles: heads that do exactly one thing are named, with the numbers of the published detectors."""

import pytest
import torch

from heads import dense
from heads.dense import pattern
from heads.made_calls import made_call
from regard.attention.masks import EVERYTHING, causal
from regard.heads.report.report import Seen
from regard.heads.report.roles import NAMES, Role

PASSAGE = 13  # different tokens, said twice


@pytest.fixture(autouse=True)
def _by_definition(monkeypatch):
    dense.stand_in(monkeypatch)


def twice():
    return torch.randperm(97)[:PASSAGE].repeat(2)[None]


def head_of(weights, tokens=None, **options):
    seen = Seen(**options)
    mask = EVERYTHING if weights.triu(1).any() else causal()
    seen.add(0, 0, made_call("attention", weights=weights, tokens=tokens, mask=mask))
    return seen[0, 0]


HEADS = {
    "previous token": lambda i: max(i - 1, 0),
    "induction": lambda i: i - PASSAGE + 1 if i >= PASSAGE else None,
    "duplicate": lambda i: i - PASSAGE if i >= PASSAGE else None,
    "first token": lambda i: 0,
    "self": lambda i: i,
}


@pytest.mark.parametrize("weight", [1.0, 0.6])
@pytest.mark.parametrize("name", HEADS)
def test_a_head_that_does_one_thing_has_its_name(name, weight):
    role = head_of(pattern(HEADS[name], 2 * PASSAGE, weight=weight), twice()).role
    assert role.name == name
    assert role.score >= role.threshold
    assert f"{role.score:.2f}" in role.evidence
    assert f"threshold {role.threshold:.2f}" in role.evidence


@pytest.mark.parametrize(
    ("place", "evidence"),
    [
        (lambda i: max(i - 3, 0), "weight on the token 3 back 0.9"),
        (lambda i: 2 if i >= 2 else 0, "weight on token 2 0.9"),
    ],
)
def test_a_head_that_keeps_to_one_place_whatever_stands_there_is_positional(place, evidence):
    role = head_of(pattern(place, 53)).role
    assert role.name == "position"
    assert evidence in role.evidence


def test_a_head_that_looks_ahead_keeps_to_its_place_too():
    weights = torch.zeros(1, 1, 17, 17)
    weights[0, 0, torch.arange(17), (torch.arange(17) + 2).clamp(max=16)] = 1
    role = head_of(weights).role
    assert role.name == "position"
    assert "the token 2 ahead" in role.evidence


def test_a_head_that_looks_about_nearby_is_local():
    apart = torch.arange(211)[:, None] - torch.arange(211)
    weights = ((apart >= 0) & (apart < 7)).double()[None, None]
    role = head_of(weights / weights.sum(-1, keepdim=True)).role
    assert role.name == "local"
    assert "looks 3.0 tokens away on average where uniform attention would be 52.5" in role.evidence


def test_a_head_that_looks_everywhere_is_broad():
    role = head_of(pattern(lambda i: 0, 101, weight=0.0)).role
    assert (role.name, role.score) == ("broad", pytest.approx(1.0))


def test_a_head_that_does_a_little_of_all_is_mixed_and_says_what_is_nearest():
    far = sum(pattern(lambda i, k=k: max(i - k, 0), 211, weight=1.0) for k in (1, 40, 55, 70, 90)) / 5
    role = head_of(far).role
    assert role.name == "mixed"
    assert "nothing passes; nearest is" in role.evidence


def test_four_tokens_are_needed_to_judge():
    role = head_of(pattern(lambda i: 0, 3)).role
    assert role.name == "mixed"
    assert "fewer than 4 tokens" in role.evidence


def test_in_a_short_text_an_even_look_is_not_taken_for_a_sink():
    head = head_of(pattern(lambda i: 0, 6, weight=0.0))
    assert head.summary["sink"] > 0.4
    assert head.role.name == "broad"


def test_the_threshold_is_chance_and_two_fifths_of_the_rest():
    weights = pattern(lambda i: max(i - 1, 0), 7, weight=0.8)
    chance = sum(1 / n for n in range(2, 8)) / 6  # the first token has no previous one
    assert head_of(weights).role.threshold == pytest.approx(chance + 0.4 * (1 - chance), rel=1e-6)


def test_where_every_token_is_the_same_the_simpler_name_wins():
    tokens = torch.zeros(1, 17, dtype=torch.long)
    assert head_of(pattern(HEADS["previous token"], 17), tokens).role.name == "previous token"
    assert head_of(pattern(HEADS["self"], 17), tokens).role.name == "self"


def test_an_induction_head_that_rests_on_the_first_token_is_an_induction_head():
    tokens = torch.cat([torch.arange(50), torch.arange(10)])[None]
    role = head_of(pattern(lambda i: i - 49 if i >= 50 else None, 60), tokens).role
    assert role.name == "induction"
    assert "over 10 repeated tokens" in role.evidence


def test_roles_are_read_from_what_was_collected():
    weights = pattern(HEADS["previous token"], 17)
    assert head_of(weights, collect=("previous",)).role.name == "previous token"
    assert head_of(weights, collect=("received",)).role.name == "mixed"


def test_every_role_that_can_be_given_is_listed():
    assert set(HEADS) | {"position", "local", "broad", "mixed"} == set(NAMES)
    assert Role("mixed", 0.0, 0.4, "").clear is False


def by_the_detector(weights, wanted):
    """TransformerLens' measure in its own terms: the share of all attention that lies on the wanted pairs."""
    return float((weights * wanted).sum() / weights.sum())


def earlier_with_the_same_token(tokens):
    same = tokens[0][:, None] == tokens[0]
    return same & torch.ones_like(same).tril(-1)


@pytest.mark.parametrize("name", ["previous token", "induction", "duplicate"])
@pytest.mark.parametrize("weight", [1.0, 0.6, 0.0])
def test_scores_are_those_of_the_published_detectors_on_a_passage_said_twice(name, weight):
    tokens, T = twice(), 2 * PASSAGE
    weights = pattern(HEADS[name], T, weight=weight)
    head = head_of(weights, tokens)
    same = earlier_with_the_same_token(tokens)
    after = torch.zeros_like(same)
    after[:, 1:] = same[:, :-1]
    wanted = {
        "previous token": torch.ones(T, T).tril(-1).triu(-1),
        "induction": after.tril().double(),
        "duplicate": same.double(),
    }
    ours = {"previous token": head.previous, "induction": head.induction, "duplicate": head.duplicate}
    for each, statistic in ours.items():
        # They divide by every row, we by the rows that could do it at all.
        rows = int((~statistic.isnan()).sum())
        assert rows == {"previous token": T - 1, "induction": PASSAGE, "duplicate": PASSAGE}[each]
        assert float(statistic.nanmean()) * rows / T == pytest.approx(by_the_detector(weights[0, 0], wanted[each]))


def test_of_a_token_said_three_times_we_count_the_last_and_the_detector_all():
    tokens = torch.arange(7).repeat(3)[None]
    weights = pattern(lambda i: i - 14 if i >= 14 else None, 21)
    head = head_of(weights, tokens)
    theirs = by_the_detector(weights[0, 0], earlier_with_the_same_token(tokens).double())
    assert float(head.duplicate.nansum()) / 21 < theirs
