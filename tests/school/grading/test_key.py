import re
from datetime import datetime, timedelta, timezone

import pytest

from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.grading.key import ClassRules, GradeKey, read_key


def test_a_key_is_a_small_toml_file(tmp_path):
    path = tmp_path / "key.toml"
    path.write_text(
        'seed = 41\nname = "MHA"\ntask = "causal multi-head attention"\nfile = "a.py"\n'
        '[sizes]\ntokens = 6\n[arguments]\nbias = true\n[weights]\nW_query = "a"\n'
    )
    key = read_key(path)
    assert key == GradeKey(
        41, "MHA", "causal multi-head attention", "a.py", {"tokens": 6}, {"bias": True}, {"W_query": "a"}
    )
    request = key.request()
    assert (request.causal, request.seed, request.probes[0].T) == (True, 41, 6)
    assert (dict(request.own), dict(request.names)) == ({"bias": True}, {"W_query": "a"})


def test_an_empty_key_asks_what_check_asks():
    request = GradeKey().request()
    assert (request.causal, request.seed, request.probes) == (None, 0, PROBES)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seeds = 3", "seeds is unknown; a key may have seed, name, task"),
        ("seed = -3", "seed (-3) must be a whole number of at least 0"),
        ("seed = ", "is not TOML"),
        ('task = "convolution"', "task (convolution) must be one of: attention without weights, self-attention"),
        ("name = 3", "name (3) must be a text"),
        ("sizes = 3", "sizes (3) must be a table"),
        ("seed = true", "seed (True) must be a whole number"),
        ("weights.W_query = 3", "weights.W_query (3) must be a text: the name of a weight"),
        ("sizes.width = 3", "sizes has no width; it may have d_in, num_heads"),
        ("sizes.tokens = 1", "sizes.tokens (1) must be a whole number from 2 to 256"),
        ("sizes.tokens = 12", "sizes.tokens (12) must not exceed sizes.context_length (11)"),
        ("sizes.tokens = 7", "tokens (7) and num_heads × head_dim (21) must all differ"),
        ("arguments.a = 1979-05-27", "arguments.a (1979-05-27) must be a number, a text, a list or a table"),
    ],
)
def test_a_wrong_key_says_what_is_wrong(tmp_path, text, says):
    path = tmp_path / "key.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"key.toml.*{re.escape(says)}"):
        read_key(path)


def test_an_exercise_is_found_beside_the_key_and_says_what_is_asked_for(tmp_path):
    path = tmp_path / "key.toml"
    path.write_text('exercise = "one/exercise.py"\nseed = 41\nfile = "a.py"\n')
    assert read_key(path) == GradeKey(41, file="a.py", exercise=str(tmp_path / "one" / "exercise.py"))
    path.write_text('exercise = "exercise.py"\nname = "MHA"\nsizes.tokens = 6\n')
    with pytest.raises(
        ValueError, match=r"a key with exercise has no name, sizes; the exercise itself says what is asked"
    ):
        read_key(path)


SEVERAL = """
seed = 41
deadline = 2026-11-20T23:59:00+01:00
late_days = 2
penalty = 0.1
roster = "roster.csv"
starter = "given/starter.py"
similar = 90

[rubric]
scores = 3
mask = 2

[[task]]
name = "CausalAttention"
task = "causal self-attention"
points = 8

[[task]]
title = "Heads"
name = "MultiHeadAttention"
seed = 5
points = 12
rubric = {merge = 1}

[[task]]
exercise = "week3/exercise.py"
"""


def test_several_tasks_share_what_the_key_says_unless_they_say_it_themselves(tmp_path):
    path = tmp_path / "key.toml"
    path.write_text(SEVERAL)
    key = read_key(path)
    rubric = {"scores": 3, "mask": 2}
    assert key.each == (
        GradeKey(41, "CausalAttention", "causal self-attention", points=8, rubric=rubric),
        GradeKey(5, "MultiHeadAttention", title="Heads", points=12, rubric={"merge": 1}),
        GradeKey(41, exercise=str(tmp_path / "week3" / "exercise.py")),
    )
    assert [one.called for one in key.each] == ["CausalAttention", "Heads", "week3"]
    assert key.rules == ClassRules(
        datetime(2026, 11, 20, 23, 59, tzinfo=timezone(timedelta(hours=1))), 2, 0.1, str(tmp_path / "roster.csv"),
        starter=str(tmp_path / "given" / "starter.py"), similar=90,
    )  # fmt: skip
    assert key.has_points
    assert not GradeKey(seed=3).has_points


def test_points_do_not_change_what_is_checked():
    assert GradeKey(41, "A", points=3, rubric={"mask": 1}).for_the_check() == GradeKey(41, "A").for_the_check()
    assert GradeKey(**GradeKey(41, "A").for_the_check()) == GradeKey(41, "A")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("points = -1", "points (-1) must be at least 0"),
        ("rubric.score = 1", "rubric has no score; it may have runs, shapes, scores, mask"),
        ("rubric.mask = -1", "rubric.mask (-1) must be points, at least 0"),
        ("rubric.mask = 0", "rubric has only zeros; give points to a part, or leave it out"),
        ('points = 5\n[[task]]\nname = "A"', "a key with [[task]] has no points of its own; each task has one"),
        ('[[task]]\nname = "A"\n[[task]]\nname = "A"', "two tasks are called A; give one of them another title"),
        ("[[task]]\nweight = 3", "weight is unknown; a key may have seed, name, task"),
        ("deadline = 2026-11-20", "deadline (2026-11-20) must be a date with a time, such as 2026-11-20T23:59:00"),
        ("penalty = 0.1", "late_days and penalty need a deadline"),
        ("deadline = 2026-11-20T23:59:00\npenalty = 10", "penalty (10) must be a part of the points for each day"),
        ("deadline = 2026-11-20T23:59:00\nlate_days = -1", "late_days (-1) must be at least 0"),
        ("similar = 0", "similar (0) must be a percentage from 1 to 100, or 101 for never"),
    ],
)
def test_wrong_points_and_rules_say_what_is_wrong(tmp_path, text, says):
    path = tmp_path / "key.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"key.toml.*{re.escape(says)}"):
        read_key(path)
