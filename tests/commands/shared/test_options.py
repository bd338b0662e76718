"""Options that commands share."""

import subprocess
import sys

import pytest

from regard.commands.shared.options import (
    blamed_on,
    check_max_tokens,
    check_model,
    command_line,
    read_head,
    read_heads,
    read_to,
    refuse,
)


def test_the_next_command_reads_the_same():
    assert command_line("see", None) == "regard see"
    assert command_line("compare", "The cat", "-", max_tokens=7) == "regard compare 'The cat' - --max-tokens 7"
    assert command_line("page", "a.txt", model="my runs/a") == "regard page a.txt --model 'my runs/a'"


def test_only_options_that_were_typed_are_refused():
    refuse({"--head": None, "--open": False}, "why", "remedy")
    with pytest.raises(ValueError, match=r"^--layer and --all cannot be used here: why; remedy$"):
        refuse({"--head": None, "--layer": 0, "--all": True}, "why", "remedy")


def test_a_text_needs_tokens():
    check_max_tokens(None)
    check_max_tokens(2, least=2)
    with pytest.raises(ValueError, match=r"^--max-tokens 1 must be at least 2: for a reason$"):
        check_max_tokens(1, least=2, why=": for a reason")


def test_heads_are_layer_and_head():
    assert read_heads("--cut", "0.2, 11.3") == [(0, 2), (11, 3)]
    assert read_heads("--cut", None) is None


@pytest.mark.parametrize("typed", ["3", "a.b", "4.3,", "-1.2", "4.3.1"])
def test_other_names_are_refused_with_the_flag(typed):
    with pytest.raises(ValueError, match=rf"--cut {typed} must be heads, such as 4\.3, head 3 of layer 4"):
        read_heads("--cut", typed)


def test_a_cut_head_hands_over_0_or_its_mean():
    assert (read_to("0"), read_to("mean")) == (0, "mean")
    with pytest.raises(ValueError, match="--to median must be 0 or mean"):
        read_to("median")


def test_a_head_has_one_name_or_two():
    assert read_head("4.3", None) == read_head("3", "4") == read_head("4.3", 4) == (4, 3)
    assert (read_head(None, None), read_head("3", "h.4.attn")) == ((None, None), ("h.4.attn", 3))


@pytest.mark.parametrize(
    ("head", "layer", "message"),
    [
        ("x", None, r"^--head x must be a number, such as 3; or 4\.3, head 3 of layer 4$"),
        ("4.3", "2", r"^--head 4\.3 is of layer 4, but --layer is 2; leave one of them out$"),
        ("3", None, r"^--head 3 needs a layer to be in; add --layer 0, or write --head 0\.3$"),
    ],
)
def test_a_head_that_cannot_be_is_refused(head, layer, message):
    with pytest.raises(ValueError, match=message):
        read_head(head, layer)


def test_an_error_is_blamed_on_the_option_that_asked_for_it():
    with pytest.raises(ValueError, match=r"^--cut 0\.9: head 9 does not exist$"), blamed_on("--cut 0.9"):
        raise ValueError("head 9 does not exist")


WITH_MODELS = ("see", "page", "poster", "play", "compare", "effect", "serve", "generate", "train")


def test_a_model_directory_that_is_missing_is_said_by_every_command_before_torch_is_loaded(tmp_path):
    more = {"train": [str(tmp_path / "a.txt"), "--out", str(tmp_path)], "play": [], "poster": ["-o", "poster.svg"]}
    (tmp_path / "a.txt").write_text("a")
    lines = [["regard", command, *more.get(command, []), "--model", "runs/no/model"] for command in WITH_MODELS]
    code = f"""
import sys
from regard.cli import _run
for sys.argv in {lines!r}:
    assert _run() == 2
    assert "torch" not in sys.modules, sys.argv
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    said = "regard: --model runs/no/model: there is no directory runs/no/model; look for a mistake in its name"
    assert result.stderr.splitlines() == [said] * len(WITH_MODELS)


def test_a_model_that_exists_and_a_name_on_the_hub_are_taken(tmp_path):
    assert [check_model(name) for name in (str(tmp_path), "tiny", "openai-community/gpt2")][1:] == [
        "tiny",
        "openai-community/gpt2",
    ]
