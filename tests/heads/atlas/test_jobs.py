"""The job of a text is the role that a report gives it; the job of a row follows the same rules."""

import pytest
import torch

import regard
from heads.atlas.corpora import LAYERS, H, corpus, small_model
from regard.heads.atlas.jobs import counts_of, job_numbers
from regard.heads.report.roles import ROLES


@pytest.mark.parametrize("model", ["tiny", "random"])
def test_the_job_of_a_text_is_its_role_in_a_report(model):
    if model == "tiny":
        model = regard.GPT.from_pretrained("tiny")
        words = ("Alice saw the cat. Alice saw the cat. Alice saw", "the the the the cat", "a b c d e f, a b c d e f")
        texts = [torch.tensor([model.tokenizer.encode(one)]) for one in words]
    else:
        model, texts = small_model(), corpus(8)
    compared = 0
    for ids in texts:
        with torch.no_grad(), regard.watch(model) as seen:
            model(ids)
        atlas = regard.atlas(model, [ids])
        for key, one in seen.portraits().items():
            if one.role.name != "position" and "fewer than" not in one.role.evidence:
                assert atlas[key].text_jobs == {one.role.name: 1.0}
                compared += 1
    assert compared >= LAYERS * H


def rows(**values):
    each = {name: torch.tensor(numbers) for name, numbers in values.items()}
    each.setdefault("largest", torch.stack(list(each.values())).amax(0))
    return each


def names_of(values, chance=0.1, **uniform):
    numbers = job_numbers(values, dict.fromkeys(values, torch.tensor(chance)), uniform)
    return [list(ROLES)[i] if i >= 0 else "" for i in numbers.tolist()]


def test_the_largest_of_those_that_pass_counts_and_repeated_ones_come_first():
    values = rows(previous=[0.5, 0.5, 0.1], sink=[0.6, 0.1, 0.1], induction=[0.1, 0.55, 0.1])
    assert names_of(values) == ["first token", "induction", "mixed"]


def test_a_repeated_token_that_is_the_previous_one_is_the_simpler_thing():
    values = rows(previous=[0.9], duplicate=[0.9])
    assert names_of(values) == ["previous token"]


def test_a_weight_counts_above_what_chance_would_give():
    assert names_of(rows(previous=[0.5]), chance=0.0) == ["previous token"]
    assert names_of(rows(previous=[0.5]), chance=0.25) == ["mixed"]  # the threshold is 0.25 + 0.4 · 0.75


def test_spread_rows_are_broad_and_near_ones_local():
    values = rows(entropy=[2.0, 0.9], distance=[9.0, 1.0], largest=[0.1, 0.3])
    uniform = {"entropy": torch.tensor(2.1), "distance": torch.tensor(20.0)}
    assert names_of(values, **uniform) == ["broad", "local"]


def test_rows_without_a_value_have_no_job():
    assert names_of({"previous": torch.tensor([torch.nan]), "largest": torch.tensor([torch.nan])}) == [""]


def test_jobs_are_counted_for_each_head():
    numbers = torch.tensor([[[0, 1, 1], [2, -1, 2]], [[1, 1, 0], [-1, -1, 8]]])  # two texts, two heads
    counts = counts_of(numbers)
    assert counts[0].tolist() == [2, 4, 0, 0, 0, 0, 0, 0, 0]
    assert counts[1].tolist() == [0, 0, 2, 0, 0, 0, 0, 0, 1]
