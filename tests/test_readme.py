"""The README's examples run in order, as a reader types them. Its commands run in .ci/base, in a new environment."""

from pathlib import Path

from readme import blocks, commands, run_python, shortened

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_every_python_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # one of them writes a file
    examples = blocks(README, "python")
    assert len(examples) >= 5
    names = run_python(examples, leave_out={})
    assert names["out"].shape == (2, 17, 768)
    assert names["cache"].length == 17


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


def test_training_and_generation_are_cut_short_and_many_processes_become_two():
    assert shortened("regard trace") == "regard trace"
    assert shortened("regard generate 'Once'") == "regard generate 'Once' --max-new-tokens 20"
    assert shortened("regard train --out here").startswith("regard train --out here --steps 3 ")
    two = shortened("torchrun --nproc-per-node 4 --no-python regard train … --parallel fsdp=2,tp=2")
    assert two.startswith("torchrun --nproc-per-node 2 --no-python regard train --parallel fsdp=2 --data books/*.txt ")
