"""`regard check` as a person types it."""

import importlib
import json

import pytest
from typer.testing import CliRunner

from benchmarks.check.cases import right_layers, wrong_layers
from regard.cli import app

check_command = importlib.import_module("regard.commands.check")
WRONG = next(case for case in wrong_layers() if case.names == ("scale by √d_model",) and case.layer == "einsum")


class KeptWorker:
    """A worker that stays for the next test."""

    def __init__(self, worker):
        self.worker = worker

    def __enter__(self):
        return self.worker

    def __exit__(self, *_):
        pass


@pytest.fixture(scope="module")
def worker():
    with check_command._worker() as one:
        yield one


@pytest.fixture(autouse=True)
def _one_worker(worker, monkeypatch):
    """One process for all tests: each starts in seconds."""
    monkeypatch.setattr(check_command, "_worker", lambda: KeptWorker(worker))


def check(*arguments):
    return CliRunner().invoke(app, ["check", *map(str, arguments)])


@pytest.fixture
def homework(tmp_path):
    path = tmp_path / "homework.py"
    path.write_text(WRONG.source)
    return path


def test_a_wrong_layer_is_named_and_ends_with_status_one(homework):
    result = check(homework)
    assert result.exit_code == 1
    assert "✗ MultiHeadAttention: scale by √d_model" in result.output
    assert "homework.py:26   scores = scores / math.sqrt(self.d_model)" in result.output
    assert f"The right line: regard check {homework} --solution" in " ".join(result.output.split())
    assert "Write:" not in result.output


def test_the_solution_is_shown_on_request(homework):
    assert "Write: scores = scores / head_dim**0.5" in check(homework, "--solution").output


def test_a_right_layer_ends_with_status_zero(homework):
    homework.write_text(right_layers()["einsum"])
    result = check(f"{homework}:MultiHeadAttention")
    assert result.exit_code == 0
    assert "✓ MultiHeadAttention is right: causal multi-head attention, 3 heads of 7" in result.output


def test_json_is_complete(homework):
    result = check(homework, "--json")
    assert result.exit_code == 1
    (verdict,) = json.loads(result.output)["verdicts"]
    assert verdict["status"] == "wrong"
    assert verdict["findings"][0]["name"] == "scale by √d_model"
    assert verdict["findings"][0]["line"] == 26


def test_a_file_without_a_layer_cannot_be_checked(homework):
    homework.write_text("x = 3\n")
    result = check(homework)
    assert result.exit_code == 2
    assert "it defines no attention layer" in " ".join(result.output.split())


def test_a_file_that_does_not_run_is_wrong(homework):
    homework.write_text("import torch\nclass A(torch.nn.Module)\n")
    result = check(homework)
    assert result.exit_code == 1
    assert "The file does not run: expected ':' (SyntaxError)." in result.output
    assert "homework.py:2   class A(torch.nn.Module)" in result.output


def test_an_error_at_the_end_of_a_file_is_a_note(homework):
    homework.write_text(right_layers()["einsum"] + "\nMultiHeadAttention(3)\n")
    result = check(homework)
    assert result.exit_code == 0
    assert "Line 34 was skipped: TypeError" in " ".join(result.output.split())


def test_constructor_arguments_and_names_can_be_given(homework):
    source = (
        right_layers()["loop"]
        .replace("heads, block_size, p=0.0", "groove, block_size")
        .replace("heads, d_model // heads", "groove, d_model // groove")
    )
    source = source.replace("nn.Dropout(p)", "nn.Dropout(0.0)")
    for ours, odd in (("wq", "alpha"), ("wk", "beta"), ("wv", "gamma"), ("wo", "delta")):
        source = source.replace(ours, odd)
    homework.write_text(source)
    assert "3 heads of 7" in check(homework).output  # a run of it tells what is what
    names = "W_query=alpha,W_key=beta,W_value=gamma,out_proj=delta"
    result = check(homework, "--set", "groove=2", "--names", names)
    assert (result.exit_code, "is right: causal multi-head attention, 2 heads" in result.output) == (0, True)
    result = check(homework, "--names", "W_query=beta,W_key=alpha,W_value=gamma,out_proj=delta")
    assert (result.exit_code, "the queries are made with W_key" in result.output) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "groove"], "--set groove must be NAME=VALUE"),
        (["--names", "W_query"], "--names W_query must be NAME=VALUE"),
        (["--set", "groove=3"], "takes no argument groove"),
    ],
)
def test_a_wrong_option_is_refused(homework, arguments, message):
    result = check(homework, *arguments)
    assert message in str(result.exception)


def test_the_future_may_be_seen_on_request(homework):
    source = right_layers()["loop"].replace("            s = s.masked_fill(future, -torch.inf)\n", "")
    homework.write_text(source)
    assert check(homework, "--causal").exit_code == 1
    assert check(homework, "--bidirectional").exit_code == 0


def test_it_keeps_to_eighty_columns(homework):
    for arguments in ([homework], [homework, "--solution"], ["--help"]):
        output = check(*arguments).output
        assert max(map(len, output.replace(str(homework), "homework.py").splitlines())) <= 80


def test_a_mistake_that_two_classes_share_is_told_once(homework):
    homework.write_text(WRONG.source + "\n\nclass SecondAttention(MultiHeadAttention):\n    pass\n")
    output = check(homework).output
    assert "✗ SecondAttention: the same as MultiHeadAttention, in the same line" in output
    assert output.count("The scores are divided by") == 1


@pytest.mark.parametrize("place", ["import", "forward"])
def test_an_endless_loop_is_out_of_time(homework, place):
    source = right_layers()["einsum"]
    if place == "import":
        homework.write_text(source + "\nwhile True: pass\n")
    else:
        homework.write_text(
            source.replace("    def forward(self, x):\n", "    def forward(self, x):\n        while True: x\n")
        )
    result = check(homework, "--time", "1")
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    line = next(i for i, text in enumerate(homework.read_text().splitlines(), 1) if "while True" in text)
    assert f"homework.py could not be checked: out of time: It was stopped after 1 s, in line {line}." in said
    assert "Is there a loop that does not end? To give it more time: --time 60" in said


def test_memory_without_end_is_out_of_memory(homework):
    forward = "    def forward(self, x):\n"
    homework.write_text(right_layers()["einsum"].replace(forward, f"{forward}        torch.zeros(1 << 40)\n"))
    result = check(homework)
    assert result.exit_code == 1
    assert "✗ MultiHeadAttention: out of memory" in result.output


def test_a_file_that_ends_its_process_cannot_be_checked(homework):
    homework.write_text("import os\nos._exit(0)\n")
    result = check(homework)
    assert result.exit_code == 2
    assert "ended early: It ended its process before it returned a result." in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.py", "there is no file "),
        ("homwork.py", "did you mean "),
        ("folder", "is not a Python file or a notebook; give FILE.py or FILE.ipynb"),
        ("homework.py:No", "has no No; it has MultiHeadAttention"),
    ],
)
def test_what_is_not_there_is_said(homework, name, message):
    (homework.parent / "folder").mkdir()
    assert message in str(check(homework.parent / name).exception)


def test_a_missing_file_is_said_before_anything_is_started(tmp_path, monkeypatch):
    monkeypatch.setattr(check_command, "_worker", lambda: pytest.fail("a worker was started"))
    result = check(tmp_path / "none.py")
    assert str(result.exception) == f"there is no file {tmp_path}/none.py; give a Python file, such as homework.py"


def test_time_must_be_greater_than_nothing(homework):
    assert "--time 0 must be greater than 0" in str(check(homework, "--time", "0").exception)
