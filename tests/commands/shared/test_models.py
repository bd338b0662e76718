"""Opening models for commands."""

import json
import shutil
import sys

import pytest
import torch

import regard
from regard.commands.shared import models
from regard.commands.shared.models import load_gpt, load_reader
from regard.gpt import GPT, GPTConfig

TWICE = "Alice was beginning to get very tired of sitting by her sister on the bank, and " * 2


def open_model(name, text, max_tokens, device, needs_steps=None):
    return load_reader(name, device, needs_steps)(text, max_tokens)


def open_gpt(name, text, max_tokens, device):
    return models._reader_of_gpt(name, device)(text, max_tokens)


def open_with_transformers(name, text, max_tokens, device):
    return models._reader_with_transformers(name, device)(text, max_tokens)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A GPT of ours, saved."""
    path = tmp_path_factory.mktemp("mine")
    GPT.from_pretrained("tiny").save_pretrained(path)
    return str(path)


def test_a_gpt_of_ours_gets_the_text_in_its_tokens_and_shows_what_python_shows():
    opened = open_gpt("tiny", TWICE, None, "cpu")
    model = GPT.from_pretrained("tiny")
    ids = torch.tensor([model.tokenizer.encode(TWICE)])
    assert opened.tokenizer.decode(opened.inputs["ids"][0]) == TWICE
    torch.testing.assert_close(opened.inputs, {"ids": ids})
    with torch.no_grad(), regard.watch(model) as right:
        model(ids)
    with torch.no_grad(), regard.watch(opened.model) as seen:
        opened.model(**opened.inputs)
    for name in ("entropy", "induction", "received"):
        torch.testing.assert_close(getattr(seen[4, 3], name), getattr(right[4, 3], name), equal_nan=True)


def test_the_number_of_tokens_can_be_limited():
    opened = open_gpt("tiny", TWICE, 5, "cpu")
    assert opened.inputs["ids"].shape == (1, 5)
    assert TWICE.startswith(opened.tokenizer.decode(opened.inputs["ids"][0]))
    assert opened.layers == 6


def test_the_packaged_model_is_ours_even_where_transformers_is_installed(monkeypatch):
    monkeypatch.setattr(models, "_reader_with_transformers", None)  # must not be called
    assert isinstance(open_model("tiny", TWICE, 5, "cpu").model, GPT)


def test_any_other_model_is_opened_with_transformers(folder):
    transformers = pytest.importorskip("transformers")
    opened = open_model(folder, TWICE, 5, "cpu")
    assert isinstance(opened.model, transformers.GPT2LMHeadModel)
    torch.testing.assert_close(opened.inputs["input_ids"], open_gpt(folder, TWICE, 5, "cpu").inputs["ids"])
    assert TWICE.startswith(opened.tokenizer.decode(opened.inputs["input_ids"][0]))
    assert opened.layers == 6


def test_without_transformers_the_remedy_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match=r"regard see loads models with transformers, .* pip install transformers"):
        open_with_transformers(folder, TWICE, None, "cpu")


def test_without_transformers_a_model_of_another_type_says_what_to_install(tmp_path, monkeypatch):
    real = models.find_spec
    monkeypatch.setattr(models, "find_spec", lambda name: None if name == "transformers" else real(name))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    message = r"is of type bert; regard by itself reads .* \(gpt2, llama, .*transformers, .*; pip install transformers$"
    with pytest.raises(ValueError, match=message):
        open_model(str(tmp_path), TWICE, None, "cpu")


def test_a_model_whose_steps_are_needed_is_opened_as_one_of_ours(folder, monkeypatch):
    monkeypatch.setattr(models, "_reader_with_transformers", None)  # must not be called
    assert isinstance(open_model(folder, TWICE, 5, "cpu", "--step scores").model, GPT)


def test_a_text_without_tokens_is_refused():
    with pytest.raises(ValueError, match="the tokenizer makes no token of this text; give it another"):
        open_gpt("tiny", "", None, "cpu")


def test_a_cpu_computes_in_float32_whatever_the_file_holds(tmp_path):
    GPT.from_pretrained("tiny").bfloat16().save_pretrained(tmp_path)
    assert {p.dtype for p in load_gpt(str(tmp_path), "cpu").parameters()} == {torch.float32}


def test_a_model_without_a_tokenizer_is_refused(folder, tmp_path):
    model = GPT.from_pretrained(folder)
    model.tokenizer = None
    model.save_pretrained(tmp_path / "mute")
    with pytest.raises(ValueError, match=r"mute has no tokenizer\.json, so no text can be read"):
        load_gpt(str(tmp_path / "mute"), "cpu")


def test_transformers_speaks_again_after_it_was_silenced(folder):
    pytest.importorskip("transformers")
    from transformers.utils import logging

    logging.enable_progress_bar()
    level = logging.get_verbosity()
    open_with_transformers(folder, TWICE, 5, "cpu")
    assert logging.is_progress_bar_enabled()
    assert logging.get_verbosity() == level


@pytest.fixture(scope="module")
def rotary_folder(tmp_path_factory):
    """A model that transformers has no class for."""
    path = tmp_path_factory.mktemp("own")
    model = GPT(GPTConfig.preset("tiny", num_layers=1, d_model=24, num_heads=3, rotary=regard.Rotary()))
    model.tokenizer = GPT.from_pretrained("tiny").tokenizer
    model.save_pretrained(path)
    return str(path)


def test_a_model_that_only_regard_knows_is_opened_too(rotary_folder):
    opened = open_model(rotary_folder, TWICE, 5, "cpu")
    assert isinstance(opened.model, GPT)
    assert opened.model.config.rotary is not None


def test_what_transformers_refuses_is_opened_as_a_gpt_of_ours_if_it_can_be(folder, monkeypatch):
    def refuse(name, device):
        raise ValueError("transformers cannot load it")

    monkeypatch.setattr(models, "_reader_with_transformers", refuse)
    assert isinstance(open_model(folder, TWICE, 5, "cpu").model, GPT)
    monkeypatch.setattr(models, "_reader_of_gpt", refuse)
    with pytest.raises(ValueError, match="transformers cannot load it"):
        open_model(folder, TWICE, 5, "cpu")


def test_a_run_and_a_home_directory_are_found_as_generate_finds_them(tmp_path, rotary_folder, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").symlink_to(rotary_folder)
    with pytest.raises(ValueError, match=r"run has no config\.json; did you mean .*run.model\?"):
        open_model(str(tmp_path / "run"), TWICE, 5, "cpu")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert isinstance(open_model("~/run/model", TWICE, 5, "cpu").model, GPT)


def test_a_preset_is_asked_for_by_its_name_on_the_hub(monkeypatch):
    asked = []
    monkeypatch.setattr(models, "_reader_with_transformers", lambda name, device: asked.append(name) or open_gpt)
    monkeypatch.setattr(models, "find_spec", lambda name: name)
    models.load_reader("gpt2-small", "cpu")
    assert asked == ["openai-community/gpt2"]


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "tokenizer.json",
            {"decoder": {"type": "Strip", "content": "a", "start": 0, "stop": 9}},
            "stop of decoder Strip",
        ),
        (
            "tokenizer.json",
            {"added_tokens": [{"id": 2**31, "content": "\x1b[2J"}]},
            r"the id of \\x1b\[2J is 2147483648",
        ),
        ("config.json", {"x": [[]] * 200_000}, "it has too many values"),
        ("config.json", {"n_layer": "\x1b[2J"}, r"could not be loaded: "),
    ],
)
def test_hostile_files_are_refused_before_transformers_reads_them(folder, tmp_path, file, change, message, capfd):
    pytest.importorskip("transformers")
    shutil.copytree(folder, tmp_path / "model")
    path = tmp_path / "model" / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=message) as error:
        open_with_transformers(str(tmp_path / "model"), TWICE, 5, "cpu")
    assert str(error.value).isprintable()
    assert capfd.readouterr().err == ""
