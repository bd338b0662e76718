"""The README's examples run in order, as a reader types them. Its commands run in .ci/base, in a new environment."""

import re
from pathlib import Path

import pytest

from readme import LONGEST_OUTPUT, blocks, commands, inline_commands, run_at_a_prompt, run_python, shortened

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_every_python_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # one of them writes a file
    examples = blocks(README, "python")
    assert len(examples) >= 5
    names = run_python(examples, leave_out={})
    assert names["weights"].shape == (2, 12, 17, 17)
    assert names["out"].equal(names["model"](names["ids"]))
    assert names["cache"].length == 17


def test_every_python_example_can_be_pasted_into_a_prompt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_at_a_prompt(blocks(README, "python"))["out"].shape == (1, 6, 4096)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("with open('x') as f:\n    f\nx = 1\n", "cannot be pasted"),
        ("1 / 0\n", "fails at a prompt"),
        (f"for i in range({LONGEST_OUTPUT + 1}): print(i)\n\n", "prints 131 lines at a prompt"),
    ],
)
def test_what_cannot_be_pasted_fails(block, message):
    with pytest.raises(SystemExit, match=message):
        run_at_a_prompt([block])


def test_the_first_screen_has_three_doors_and_the_page_is_short():
    lines = README.splitlines()
    assert len(lines) <= 200
    doors = [line for line in lines[:30] if line.startswith("| **[")]
    assert [re.search(r"\[(.*?)\]", door)[1] for door in doors] == ["a student", "an engineer", "a researcher"]


def test_every_file_that_a_command_names_is_in_the_repository():
    named = [word for command in [*commands(README), *inline_commands(README)] for word in command.split()]
    files = [word for word in named if word.startswith(("examples/", "docs/"))]
    assert files
    assert all(list(ROOT.glob(file)) for file in files)


def test_the_two_commands_are_there():
    assert "make demo" in README
    assert "make test" in README


def test_commands_are_read_from_blocks_without_a_language_and_without_comments():
    text = (
        "regard is prose\n```python\nregard = 1\n```\n"
        "```\nmake demo\nregard trace 'a cat'   # follow it\nsource x\n```\n"
        "```\n$ regard see\n\n  tiny\n$ regard see --head 4.3\ntorchrun regard train … --parallel tp=2\n```\n"
    )
    assert commands(text) == [
        "regard trace 'a cat'",
        "regard see",
        "regard see --head 4.3",
        "torchrun regard train … --parallel tp=2",
    ]


def test_every_kind_of_command_is_found_in_the_readme():
    kinds = {" ".join(command.split()[:2]) for command in commands(README)}
    assert kinds >= {"regard trace", "regard see", "regard generate", "regard train", "torchrun --standalone"}


def test_commands_in_sentences_are_found_and_patterns_are_not():
    assert {"regard card", "regard docs softmax", "regard grade examples/submissions"} <= set(inline_commands(README))
    assert inline_commands("`regard see FILE --model MODEL`, `regard.adopt`\n```\n`regard see`\n```\n") == []


def test_training_and_generation_are_cut_short_and_many_processes_become_two():
    assert shortened("regard trace") == "regard trace"
    assert shortened("regard generate 'Once'") == "regard generate 'Once' --max-new-tokens 20"
    assert shortened("regard train --out here").startswith("regard train --out here --steps 3 ")
    two = shortened("torchrun --nproc-per-node 4 --no-python regard train … --parallel fsdp=2,tp=2")
    assert two.startswith("torchrun --nproc-per-node 2 --no-python regard train docs/*.md --parallel fsdp=2 ")
