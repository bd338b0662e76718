"""Where a model is looked for: a directory, a name on the hub, the package."""

import pytest
import torch

from gpt.directories import ours
from regard import GPT
from regard.gpt.checkpoint import model_directory
from regard.gpt.checkpoint.stored_tensors import INDEX, SINGLE

transformers = pytest.importorskip("transformers")


def test_a_name_is_fetched_without_code_or_pickles(gpt2, monkeypatch):
    import huggingface_hub

    asked = []

    def fetch(name, *, allow_patterns):
        asked.append((name, allow_patterns))
        return str(gpt2)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    monkeypatch.chdir(gpt2)
    for name in ("somebody/some-model", "gpt2", "gpt2-small"):
        assert GPT.from_pretrained(name).config.vocab_size == 97
    assert [name for name, _ in asked] == ["somebody/some-model", "gpt2", "openai-community/gpt2"]
    assert asked[0][1] == [
        "config.json",
        "generation_config.json",
        "model*.safetensors",
        INDEX,
        "tokenizer.json",
    ]


@pytest.fixture
def hub_raises(monkeypatch):
    """A hub that answers with an error."""
    import huggingface_hub

    def set_error(error):
        def fetch(name, **_):
            raise error

        monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "https://hub.example:443")

    return set_error


REMEDY = (
    r"; check the name, or run `hf download a/b --local-dir DIRECTORY` where there is a network and give that "
    r"directory\. Nothing was loaded\.$"
)


def test_a_hub_that_cannot_be_reached_says_how_to_get_the_model_otherwise(hub_raises):
    hub_raises(ConnectionError("the network is unreachable.\nlong details"))
    message = r"^there is no directory a/b, and the hub \(hub\.example\) cannot be reached" + REMEDY
    with pytest.raises(ValueError, match=message):
        GPT.from_pretrained("a/b")


def test_a_connection_that_failed_further_down_counts_too(hub_raises):
    error = RuntimeError("snapshot not found")
    error.__cause__ = type("ConnectError", (Exception,), {})("Name or service not known")
    hub_raises(error)
    with pytest.raises(ValueError, match=r"the hub \(hub\.example\) cannot be reached"):
        GPT.from_pretrained("a/b")


def test_a_hub_that_does_not_have_it_says_why(hub_raises):
    hub_raises(RuntimeError("401: no such repository.\nlong details"))
    message = (
        r"^there is no directory a/b, and the hub \(hub\.example\) does not give it: 401: no such repository" + REMEDY
    )
    with pytest.raises(ValueError, match=message):
        GPT.from_pretrained("a/b")


def test_a_name_that_is_nearly_a_presets_is_asked_about(hub_raises):
    hub_raises(ConnectionError("the network is unreachable"))
    with pytest.raises(ValueError, match=r"there is no directory gpt2-smal \(did you mean gpt2-small\?\), and the hub"):
        GPT.from_pretrained("gpt2-smal")


def test_the_model_in_the_package_is_float32_unless_dtype_is_given(tmp_path, monkeypatch):
    ours().half().save_pretrained(tmp_path / "tiny")
    monkeypatch.setattr(model_directory, "PACKAGED", tmp_path / "tiny")
    for name in ("tiny", tmp_path / "tiny"):
        assert GPT.from_pretrained(name).token_embedding.weight.dtype is torch.float32
        assert GPT.from_pretrained(name, dtype=torch.bfloat16).token_embedding.weight.dtype is torch.bfloat16
    monkeypatch.setattr(model_directory, "PACKAGED", tmp_path / "elsewhere" / "tiny")
    assert (
        GPT.from_pretrained(tmp_path / "tiny").token_embedding.weight.dtype is torch.float16
    )  # a directory like any other
    with pytest.raises(ValueError, match=r"the model in the package, .*, is missing; install regard again"):
        GPT.from_pretrained("tiny")


def test_the_directory_of_a_run_leads_to_its_model(gpt2, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    gpt2.rename(run / "model")
    with pytest.raises(ValueError, match=r"run has no config.json; did you mean .*run/model\? Nothing was loaded"):
        GPT.from_pretrained(run)


def test_the_hub_itself_is_answered_when_offline(monkeypatch, tmp_path):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        ValueError, match=r"nobody/nothing, and the hub \(.*\) is not asked, because HF_HUB_OFFLINE is set"
    ):
        GPT.from_pretrained("nobody/nothing")


@pytest.mark.parametrize("name", ["./x", "/no/such/place", "a/b/c", "x/", "~/no-such-place", "../x"])
def test_a_path_that_leads_nowhere_is_not_looked_for_elsewhere(name, monkeypatch):
    monkeypatch.setattr(model_directory, "download", lambda name: pytest.fail("it asked the hub"))
    with pytest.raises(
        ValueError, match=r"there is no directory .*; look for a mistake in its name\. Nothing was loaded"
    ):
        GPT.from_pretrained(name)


def test_a_path_object_is_a_path(tmp_path, monkeypatch):
    monkeypatch.setattr(model_directory, "download", lambda name: pytest.fail("it asked the hub"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="there is no directory x"):
        GPT.from_pretrained(type(tmp_path)("x"))


def test_a_file_is_no_directory(gpt2):
    with pytest.raises(ValueError, match=r"model.safetensors is a file; give the directory it lies in"):
        GPT.from_pretrained(gpt2 / SINGLE)


@pytest.mark.parametrize("name", ["~nobody-has-this-name/model", "m" * 5000])
def test_a_name_that_no_file_can_have_is_one_line(name):
    with pytest.raises(ValueError, match=r"no model is called .{1,90}: .*\. Nothing was loaded\."):
        model_directory.find_directory(name)
