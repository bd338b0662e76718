"""The options of generation: stated once, taken by GPT.generate, GPT.stream and `regard generate`."""

import inspect
import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.gpt import GPT
from regard.gpt.generate.options import GenerateOptions, SamplingOptions, StreamOptions
from regard.gpt.option_table import flags_of, table


@pytest.mark.parametrize(("method", "options"), [(GPT.generate, GenerateOptions), (GPT.stream, StreamOptions)])
def test_the_methods_take_every_option_and_describe_it(method, options):
    first, prompt, length, *others = inspect.signature(method).parameters.values()
    assert [first.name, prompt.name, length.name] == ["self", "prompt", "max_new_tokens"]
    assert length.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert {p.kind for p in others} == {inspect.Parameter.KEYWORD_ONLY}
    assert [(p.name, p.default) for p in (length, *others)] == [(s.name, s.default) for s in table(options)]
    assert all(f"    {spec.name}: {spec.option.help} [default: " in method.__doc__ for spec in table(options))


def test_the_arguments_of_generate_are_those_of_the_last_release():
    assert list(inspect.signature(GPT.generate).parameters) == [
        "self", "prompt", "max_new_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop", "mask",
        "samples", "logprobs",
    ]  # fmt: skip


def test_a_call_that_does_not_fit_is_told_by_the_name_of_the_method():
    with pytest.raises(TypeError, match=r"^GPT\.generate\(\) got an unexpected keyword argument 'temprature'$"):
        GPT("tiny").generate([5], temprature=0)
    with pytest.raises(TypeError, match=r"^GPT\.stream\(\) missing a required argument: 'prompt'$"):
        GPT("tiny").stream()


def test_sampling_alone_is_what_graphs_are_kept_by():
    options = GenerateOptions(7, temperature=0.5, top_k=3, seed=11, stop="x", samples=2)
    assert options.sampling == SamplingOptions(temperature=0.5, top_k=3)
    assert hash(options.sampling) == hash(StreamOptions(9, temperature=0.5, top_k=3).sampling)


def test_the_command_shows_every_flag_with_its_default():
    shown = " ".join(CliRunner().invoke(app, ["generate", "--help"], env={"COLUMNS": "80"}).output.split())
    flags = list(flags_of(GenerateOptions))
    assert {field.name for field in fields(SamplingOptions)} < {spec.name for spec in flags}
    for spec in flags:
        assert f"{spec.option.help} [default: {spec.default_text}]" in shown, spec.name


FIELD = """    later: Annotated[int, Option("Take a token with a later id.", number(lambda n: n >= 0, "0 or more"))] = 0

    def __post_init__"""
USE = "picked = (_invert(probabilities, noise) + sampling.later) % logits.shape[-1]"
SCRIPT = """
    import regard
    from typer.testing import CliRunner
    from regard.cli import app
    from regard import GPT

    model = GPT.from_pretrained("tiny")
    plain, later = (model.generate([5, 6], 1, seed=7, later=n) for n in (0, 3))
    print(later[0] - plain[0], list(model.stream([5, 6], 1, seed=7, later=3)) == later)
    words = ["generate", "the", "--device", "cpu", "--max-new-tokens", "1", "--seed", "7", "--top-k", "0", "--later"]
    print(CliRunner().invoke(app, [*words, "3"]).stdout != CliRunner().invoke(app, [*words, "0"]).stdout)
    print(CliRunner().invoke(app, [*words, "-1"]).exception)
    print("Take a token with a later id. [default: 0]" in CliRunner().invoke(app, ["generate", "--help"]).output)
"""


def test_a_sampling_option_touches_two_files(tmp_path):
    """A copy of the package with a field in options.py and its use in sample.py: methods and command have it."""
    copy = tmp_path / "regard"
    shutil.copytree(Path(regard.__file__).parent, copy, copy_function=os.symlink)
    for name, old, new in (
        ("options.py", "    def __post_init__", FIELD),
        ("sample.py", "picked = _invert(probabilities, noise)", USE),
    ):
        file = copy / "gpt" / "generate" / name
        text = file.read_text()
        file.unlink()
        file.write_text(text.replace(old, new, 1))
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    run = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    result = subprocess.run(run, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    assert result.stdout.splitlines() == ["3 True", "True", "--later -1 must be 0 or more", "True"]
