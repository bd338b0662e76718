"""`regard atlas A B` in the terminal and as JSON."""

import json

import pytest
from typer.testing import CliRunner

from heads.atlas.corpora import changed_model, small_atlas, small_model
from regard import cli


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("atlases")
    for name, model in (("a", small_model()), ("b", changed_model())):
        small_atlas(model).save(folder / f"{name}.safetensors")
    return [str(folder / f"{name}.safetensors") for name in "ab"]


def run(*arguments):
    result = CliRunner().invoke(cli.app, ["atlas", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_the_head_that_changed_is_shown_with_rows_in_which_it_disagrees(files):
    out = run(*files)
    assert out.startswith("\n  1 of 6 heads changed beyond noise\n\n  head  role")
    assert "\n  1.2 " in out
    title, shown = out.split("\n  Where they disagree, first and second:\n")
    lines = [line for line in shown.splitlines() if line]
    assert (title.count("«"), lines[0].strip(), len(lines)) == (0, "1.2", 5)
    assert all("«" in line for line in lines[1:])
    assert "%" in lines[1]


def test_equal_atlases_have_nothing_to_say(files):
    assert run(files[0], files[0]).endswith("nothing changed beyond its noise\n")


def test_all_numbers_are_json(files):
    plain = json.loads(run(*files, "--json"))
    assert len(plain) == 6
    assert (plain[0]["before"], plain[0]["after"], plain[0]["beyond"] > 0) == ("1.2", "1.2", True)
    assert {one["beyond"] for one in plain[1:]} == {0.0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--probe"], "--probe cannot be used here: two atlases are compared; leave them out"),
        (["-o", "a.html"], "-o cannot be used here: two atlases are compared; leave them out"),
    ],
)
def test_options_that_mean_nothing_are_refused(files, arguments, message):
    with pytest.raises(ValueError, match=message):
        run(*files, *arguments)


def test_what_is_no_atlas_is_measured_first():
    with pytest.raises(
        ValueError, match=r"gpt2 is no atlas, .*; measure it first: regard atlas gpt2 --data FILE -o gpt2"
    ):
        run("tiny", "gpt2")
