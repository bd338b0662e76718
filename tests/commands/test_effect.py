"""`regard effect`."""

import json

import pytest
from typer.testing import CliRunner

import regard
from regard import cli

CAT = "The cat sat on the mat. The cat sat"


def effect(*arguments):
    result = CliRunner().invoke(cli.app, ["effect", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_the_costliest_heads_are_listed_first_with_their_roles():
    out = effect(CAT, "--heads", "5.0,0.2,4.3")
    assert out.startswith("\n  tiny\n  6 layers × 8 heads · 10 tokens · loss per token ")
    rows = [line.split() for line in out.splitlines() if line[:3] in ("  0", "  4", "  5")]
    assert rows[0][:3] == ["0.2", "previous", "token"]
    assert [row[0] for row in rows] == [one.name for one in measured(heads=[(5, 0), (0, 2), (4, 3)]).order()]
    assert f"regard compare '{CAT}' --cut 0.2" in out
    assert max(len(line) for line in out.splitlines() if "regard " not in line) <= 80


def test_the_next_commands_read_and_cut_as_this_one_did():
    out = effect(CAT, "--heads", "0.2", "--to", "mean", "--max-tokens", "7")
    assert f"regard compare '{CAT}' --max-tokens 7 --cut 0.2 --to mean\n" in out
    assert f"regard effect '{CAT}' --max-tokens 7 --to mean -o effect.svg\n" in out


def measured(**options):
    return regard.effect(regard.GPT.from_pretrained("tiny"), CAT, **options)


def test_json_is_that_of_python():
    plain, expected = json.loads(effect(CAT, "--layers", "--to", "mean", "--json")), measured(layers="all", to="mean")
    assert plain == json.loads(expected.to_json())
    assert sorted(one["name"] for one in plain["effects"]) == [f"layer {i}" for i in range(6)]


def test_a_token_ranks_heads_by_its_log_probability():
    plain = json.loads(effect(CAT, "--heads", "0.2,4.3", "--token", "cat@8", "--json"))
    assert plain["chosen"] == [[8]]
    assert [one["logprob"] for one in plain["effects"]] == sorted(one["logprob"] for one in plain["effects"])


def test_several_texts_show_the_noise():
    out = effect(CAT, "Once upon a time there was a king.", "--heads", "0.2,5.0")
    assert "2 texts × " in out
    assert " ± " in out


def test_figure_and_file_are_written(tmp_path):
    figure, file = tmp_path / "effect.svg", tmp_path / "effect.json"
    out = effect(CAT, "--heads", "0.2,4.3", "-o", str(figure), "--save", str(file))
    assert "<svg" in figure.read_text()
    assert set(regard.load_effects(file).by_head()) == {(0, 2), (4, 3)}
    assert f"Wrote {figure}" in out
    assert f"Saved: regard.load_effects({str(file)!r})" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["the", "cat", "sat"], 'a text of several words needs quotes: regard effect "the cat sat"'),
        ([CAT, "--heads", "3"], r"--heads 3 must be heads, such as 4\.3, head 3 of layer 4"),
        ([CAT, "--heads", "9.1"], r"--heads 9\.1: there is no layer 9; the model has layers 0 to 5"),
        ([CAT, "--heads", "0.2", "--layers"], r"--heads 0\.2 cuts heads and --layers whole layers"),
        ([CAT, "--to", "3"], "--to 3 must be 0 or mean; other values in Python"),
        ([CAT, "--json", "--all"], "--json prints all numbers, so --all has no effect"),
        ([CAT, "-o", "page.html"], r"-o page\.html: effects are a figure, .*; try -o page\.svg"),
        ([CAT, "--save", "a.safetensors"], r"--save a\.safetensors: effects are a JSON file; try --save a\.json"),
        ([CAT, "--max-tokens", "1"], "--max-tokens 1 must be at least 2"),
        ([CAT, "--token", "dog"], "no token is called 'dog'"),
    ],
)
def test_options_that_cannot_be_followed_say_why(arguments, message):
    with pytest.raises(ValueError, match=message):
        effect(*arguments)
