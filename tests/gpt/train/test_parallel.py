"""Many processes compute what one does: gloo, on one machine, 2 and 4 of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from gpt.train import many_processes as processes
from gpt.train.many_processes import CONFIGS, MORE, STEPS
from regard.gpt.train.parallel import Parallel, init_parallel
from regard.gpt.train.processes import Processes
from regard.gpt.train.state import read_log

PLANS = {"fsdp=2": 2, "tp=2": 2, "fsdp=4": 4, "fsdp=2,tp=2": 4}
# In float64 only the order of sums is left, magnified by AdamW where gradients are near 0: 5e-14 as measured.
CLOSE = {"rtol": 1e-11, "atol": 1e-11}


def torchrun(count, *words, **options):
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count), *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, **options)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """These models are so small that threads would only wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def alone():
    """The same runs in one process: the first steps, what they left, and the steps after it."""
    found = {}
    for name, config in CONFIGS.items():
        _, run = processes.trained(Processes(), config)
        state = {key: value for key, value in run.items() if key not in ("losses", "lengths")}
        found[name] = run | {"state": state, "resumed": processes.resumed(Processes(), config, state)}
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def messages(alone, folder):
    """What the processes said, by their number: one start for 2 of them, one for 4."""
    for name, run in alone.items():
        save_file(run["state"], folder / f"{name}.safetensors")
    found = {}
    for count in sorted(set(PLANS.values())):
        done = torchrun(count, processes.__file__, folder, *[plan for plan, n in PLANS.items() if n == count])
        assert done.returncode != 0  # the last thing they do is to fail
        found[count] = done.stderr
    return found


@pytest.fixture(scope="module")
def runs(messages, folder):
    """All that the processes found, by plan."""
    missing = [plan for plan in PLANS if not (folder / f"{plan}.safetensors").exists()]
    assert not missing, messages[PLANS[missing[0]]][-5000:]
    return {plan: load_file(folder / f"{plan}.safetensors") for plan in PLANS}


def each_plan(test):
    """Slow: what these compare is computed once, by two and by four processes."""
    return pytest.mark.slow(pytest.mark.parametrize("plan", PLANS)(test))


each_config = pytest.mark.parametrize("name", CONFIGS)


@each_plan
@each_config
def test_losses_and_gradient_lengths_are_those_of_one_process(plan, name, runs, alone):
    assert len(alone[name]["losses"]) == STEPS
    torch.testing.assert_close(runs[plan][f"{name}/losses"], alone[name]["losses"], **CLOSE)
    torch.testing.assert_close(runs[plan][f"{name}/lengths"], alone[name]["lengths"], **CLOSE)
    assert (alone[name]["lengths"] > processes.MAX_NORM).all()  # so clipping mattered


@each_plan
@each_config
def test_weights_and_the_optimizers_memory_end_as_those_of_one_process(plan, name, runs, alone):
    found = {key.removeprefix(f"{name}/"): value for key, value in runs[plan].items() if key.startswith(f"{name}/")}
    found = {key: value for key, value in found.items() if key.startswith(("model.", "optimizer."))}
    assert found.keys() == alone[name]["state"].keys()
    for key, value in alone[name]["state"].items():
        torch.testing.assert_close(found[key], value, msg=lambda text, key=key: f"{key}: {text}", **CLOSE)


@each_plan
@each_config
def test_what_many_have_saved_one_takes_up(plan, name, runs, alone):
    prefix = f"{name}/"
    state = {key.removeprefix(prefix): value for key, value in runs[plan].items() if key.startswith(prefix)}
    losses = processes.resumed(Processes(), CONFIGS[name], state)
    assert len(losses) == MORE
    torch.testing.assert_close(losses, alone[name]["resumed"], **CLOSE)


@each_plan
@each_config
def test_what_one_has_saved_many_take_up(plan, name, runs, alone):
    torch.testing.assert_close(runs[plan][f"{name}/resumed"], alone[name]["resumed"], **CLOSE)


@each_plan
def test_noise_is_the_same_within_a_data_rank_and_different_between_them(plan, runs):
    tp = Parallel.parse(plan, PLANS[plan]).tp
    losses = runs[plan]["noise"].view(-1, tp)
    assert (losses == losses[:, :1]).all()
    assert len(losses[:, 0].unique()) == len(losses)


@each_plan
@each_config
def test_what_tp_does_not_split_stays_the_same_to_the_bit(plan, name, runs):
    tp = Parallel.parse(plan, PLANS[plan]).tp
    sums = runs[plan][f"{name}/copies"].view(-1, tp)
    assert (sums == sums[:, :1]).all()


@each_plan
def test_in_bfloat16_losses_stay_near_and_weights_stay_float32_and_shared_out(plan, runs):
    model, optimizer = processes.fresh(CONFIGS["gpt2"], Processes(), dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        losses, _ = processes.train(Processes(), model, optimizer, range(2))
    torch.testing.assert_close(runs[plan]["narrow"], losses, rtol=1e-2, atol=0.0)
    whole = sum(p.nbytes for p in model.parameters())
    largest = int(runs[plan]["bytes"].max())
    # tp splits the blocks and not the embeddings; 31 rows do not share out quite evenly.
    assert largest < whole * {"fsdp=2": 0.52, "fsdp=4": 0.27, "tp=2": 0.62, "fsdp=2,tp=2": 0.32}[plan]


@each_plan
def test_the_main_process_is_heard_everywhere_and_any_process_too(plan, runs):
    assert runs[plan]["shared"] == 100
    assert runs[plan]["any"].tolist() == [False, True]


def test_nothing_said_is_fsdp_for_all():
    assert Parallel.parse(None, world_size=6) == Parallel(fsdp=6, tp=1)


@pytest.mark.parametrize(
    "text, plan",
    [("fsdp=3", Parallel(3, 1)), ("tp=3", Parallel(1, 3)), (" tp = 1 , fsdp = 3 ", Parallel(3, 1))],
)
def test_one_word_is_enough_and_order_and_spaces_do_not_matter(text, plan):
    assert Parallel.parse(text, world_size=3) == plan


@pytest.mark.parametrize(
    "text, world_size, message",
    [
        ("fsdp=2,dp=2", 4, r"is made of fsdp=… and tp=…, and 'dp=2' is neither; try fsdp=2,tp=2 \(fsdp shards"),
        ("fsdp", 4, r"parallel \('fsdp'\) is made of fsdp=… and tp=…, and 'fsdp' is neither"),
        ("", 4, r"parallel \(''\) is made of fsdp=… and tp=…, and '' is neither"),
        ("fsdp=2,", 2, r"and '' is neither"),
        ("fsdp=two", 2, r"^fsdp \('two'\) must be a whole number of at least 1; try fsdp=2$"),
        ("tp=0", 2, r"^tp \('0'\) must be a whole number of at least 1"),
        ("tp=-2", 2, r"^tp \('-2'\) must be a whole number of at least 1"),
        ("tp=2.0", 2, r"^tp \('2.0'\) must be a whole number of at least 1"),
        ("tp=²", 2, r"^tp \('²'\) must be a whole number of at least 1"),
        ("fsdp=2,fsdp=2", 4, r"gives fsdp twice; give it once"),
        (
            "fsdp=2,tp=2",
            2,
            r"^fsdp=2 × tp=2 is 4 processes but torchrun started 2; use --nproc-per-node 4, or tp=2$",
        ),
        ("fsdp=4", 2, r"^fsdp=4 is 4 processes but torchrun started 2; use --nproc-per-node 4, or fsdp=2$"),
        ("tp=3", 4, r"^tp=3 is 3 processes but torchrun started 4; use --nproc-per-node 3, or fsdp=4$"),
        ("tp=1", 6, r"^fsdp=1 is 1 process but torchrun started 6; use --nproc-per-node 1, or fsdp=6$"),
        (
            "fsdp=2,tp=2",
            None,
            r"^parallel \(fsdp=2,tp=2\) is for 4 processes, but this process was started without torchrun; "
            r"run torchrun --standalone --nproc-per-node 4 --no-python regard train …$",
        ),
    ],
)
def test_a_text_that_cannot_be_says_what_can(text, world_size, message):
    with pytest.raises(ValueError, match=message):
        Parallel.parse(text, world_size)


@pytest.mark.parametrize(
    "plan, changes, message",
    [
        (Parallel(tp=3), {},
            r"^tp \(3\) must divide num_heads \(4\) and num_kv_heads \(4\) and d_ff \(46\); try tp=1 or 2$"),
        (Parallel(tp=4), {}, r"^tp \(4\) must divide d_ff \(46\); try tp=1 or 2$"),
        (Parallel(tp=4), {"d_ff": 48, "num_kv_heads": 2}, r"^tp \(4\) must divide num_kv_heads \(2\); try tp=1 or 2$"),
        (Parallel(tp=2), {"num_kv_heads": 1}, r"^tp \(2\) must divide num_kv_heads \(1\); try tp=1$"),
    ],
)  # fmt: skip
def test_a_tp_that_does_not_divide_the_model_says_what_would(plan, changes, message):
    with pytest.raises(ValueError, match=message):
        plan.check(CONFIGS["gpt2"].with_(**changes))


def test_starting_without_torchrun_gives_the_command(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with (
        pytest.raises(ValueError, match=r"started without torchrun; run torchrun --standalone --nproc-per-node 2"),
        init_parallel("fsdp=2"),
    ):
        pass


@pytest.mark.slow
def test_an_error_of_one_process_ends_all_with_its_message(messages):
    for text in messages.values():
        assert "ValueError: process 1 has lost its text" in text


@pytest.mark.slow
def test_the_command_trains_with_two_processes_and_goes_on_with_one(tmp_path, capsys):
    from regard.commands.train import train_on_files

    text = tmp_path / "text.txt"
    text.write_text("".join(f"The cat sat on {n} mats and saw {n % 7} mice.\n" for n in range(199)))
    told = {"context_length": 11, "steps": 6, "batch": 4, "checkpoint_every": 3, "evaluate_every": 3}
    options = [word for name, value in told.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = [Path(sys.executable).with_name("regard"), "train", "--data", text, "--out", tmp_path / "many"]
    done = torchrun(2, "--no-python", *command, "--device", "cpu", "--parallel", "fsdp=2", *options)
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.count("Next: regard generate") == 1  # only the main process speaks

    def losses(folder):
        lines = read_log(tmp_path / folder / "log.jsonl")
        assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
        return torch.tensor([[line["loss"], line["grad_norm"], line.get("val_loss", 0.0)] for line in lines])

    with_two = losses("many")
    train_on_files([text], tmp_path / "one", device="cpu", progress=False, **told)
    torch.testing.assert_close(with_two, losses("one"), rtol=1e-4, atol=0.0)  # float32

    (tmp_path / "many" / "checkpoint-00000006.safetensors").unlink()
    train_on_files([text], tmp_path / "many", device="cpu", progress=False, **told)  # from step 3 on
    torch.testing.assert_close(losses("many"), losses("one"), rtol=1e-4, atol=0.0)
    capsys.readouterr()
