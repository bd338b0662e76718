import re

import pytest

from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.grading.key import GradeKey, read_key


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
