"""regard see, as a person types it: a model directory, a text, a picture."""

import json
import socket
import sys
from pathlib import Path

import pytest
import torch

from heads import dense
from regard.commands.see import see
from regard.heads.report.report import load_seen

transformers = pytest.importorskip("transformers")

TEXT = "the cat sat on the mat and the cat saw the dog\n"


def watch(model, text, **options):
    return see(text, model=model, **options)


@pytest.fixture(autouse=True)
def _by_definition(monkeypatch):
    dense.stand_in(monkeypatch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny GPT-2 with random weights and a tokenizer of whole words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    path = tmp_path_factory.mktemp("model")
    words = ["?", *sorted(set(TEXT.split()))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(path)
    torch.manual_seed(123)
    config = transformers.GPT2Config(vocab_size=len(words), n_positions=16, n_embd=12, n_layer=2, n_head=3)
    transformers.GPT2LMHeadModel(config).save_pretrained(path)
    return path


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def test_the_heads_of_a_model_directory_are_printed(folder, text, capsys):
    seen = watch(str(folder), str(text))
    out = capsys.readouterr().out
    assert seen.layers == ["transformer.h.0.attn", "transformer.h.1.attn"]
    assert "· 12 tokens" in out
    assert "2 layers × 3 heads · 12 tokens" in out
    assert "head  role" in out
    layer, head = seen.order()[0]  # the one that the table lists first
    assert f"head {layer}.{head} · {seen[layer, head].role.name} · transformer.h.{layer}.attn[{head}]" in out
    assert f"As a page:    regard page {text} --model {folder} -o page.html" in out
    assert all(f"\n  {layer}.{head} " in out for layer in range(2) for head in range(3))


def test_one_layer_or_one_head_can_be_chosen(folder, text, capsys):
    watch(str(folder), str(text), layer="1")
    assert "\n  0." not in capsys.readouterr().out
    watch(str(folder), str(text), layer="1", head="2")
    out = capsys.readouterr().out
    assert "transformer.h.1.attn[2]" in out
    assert out.count("█") >= 1
    assert "  cat@1  " in out
    watch(str(folder), str(text), layer="transformer.h.0.attn", head="0")
    assert "transformer.h.0.attn[0]" in capsys.readouterr().out


def test_what_was_seen_can_be_saved(folder, text, tmp_path, capsys):
    seen = watch(str(folder), str(text), save=str(tmp_path / "seen.safetensors"))
    assert "regard.load_seen(" in capsys.readouterr().out
    again = load_seen(tmp_path / "seen.safetensors")
    torch.testing.assert_close(again[1].weights(), seen[1].weights(), rtol=0, atol=0)


def test_token_ids_are_known_so_that_repeated_words_count(folder, text):
    assert "induction" in watch(str(folder), str(text))[0, 0].summary


def test_a_bar_moves_where_someone_looks_and_only_there(folder, text, monkeypatch, capsys):
    watch(str(folder), str(text))
    assert "watching" not in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    watch(str(folder), str(text))
    told = capsys.readouterr().err
    assert "watching" in told
    assert "2/2" in told


def test_standard_input_is_a_text_too(folder, monkeypatch, capsys):
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("the cat sat"))
    watch(str(folder), "-")
    assert "· 3 tokens" in capsys.readouterr().out


def test_a_text_longer_than_the_model_reads_is_cut_only_when_asked(folder, text, capsys):
    text.write_text(TEXT * 2)
    with pytest.raises(ValueError, match=r"the text has 24 tokens and the model reads at most 16; add --max-tokens 16"):
        watch(str(folder), str(text))
    watch(str(folder), str(text), max_tokens=16)
    assert "· 16 tokens" in capsys.readouterr().out


def test_a_model_that_only_encodes_is_watched_without_a_language_head(folder, text, tmp_path, capsys):
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "bert")
    config = transformers.BertConfig(
        vocab_size=31, hidden_size=10, num_hidden_layers=3, num_attention_heads=2, intermediate_size=7
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    capsys.readouterr()
    assert len(watch(str(tmp_path / "bert"), str(text))) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head": "1"}, r"--head 1 needs a layer to be in; add --layer 0"),
        ({"max_tokens": 0}, r"--max-tokens 0 must be at least 1"),
        ({"text": "nowhere.txt"}, r"there is no file nowhere\.txt; give a file, a sentence in quotes, or - for"),
        ({"text": "notes/today"}, r"there is no file notes/today; give a file, a sentence"),
        ({"text": "."}, r"^\. is a directory; name a file in it"),
        ({"text": " "}, r"the text ' ' is empty; give it at least a word"),
        ({"head": "1.0", "every": True}, r"--head 1\.0 shows one head and --all every head; leave one of them out"),
        ({"save": "out.json"}, r"--save out\.json: a report is a safetensors file; try --save out\.safetensors"),
        ({"save": "/no/such/a.safetensors"}, r"--save /no/such/a\.safetensors: there is no directory /no/such; make"),
        ({"step": "scores", "token": "cat"}, r"--step scores shows one head and --token every head; leave one"),
        (
            {"as_json": True, "every": True},
            r"--json prints all heads, so --head, --token, --step and --all have no effect",
        ),
        ({"token": "cat", "head": "1.0"}, r"--token cat is shown in every head, but --head is 1\.0"),
        ({"save": "runs/a b"}, r"a report is a safetensors file; try --save 'runs/a b\.safetensors'"),
        ({"model": "/no/such/model"}, r"there is no directory /no/such/model; give one that model\.save_pretrained"),
        ({"layer": "2"}, r"layer 2 does not exist: this report has 2 layers, 0 to 1"),
        ({"device": "abacus"}, r"--device abacus is none that torch knows; try cpu or cuda"),
    ],
)
def test_a_missed_rule_is_one_line_with_the_remedy(options, message, folder, text):
    with pytest.raises(ValueError, match=message) as caught:
        watch(**{"model": str(folder), "text": str(text)} | options)
    assert "\n" not in str(caught.value)


def test_a_name_that_is_nowhere_is_refused_without_asking_a_hub_that_is_out_of_reach(folder, text, monkeypatch):
    def lost(*told):
        raise socket.gaierror("Name or service not known")

    for proxy in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket, "getaddrinfo", lost)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *told, **more: pytest.fail("was asked"))
    with pytest.raises(
        ValueError,
        match=r"there is no directory nosuch, and the hub \(.*\) cannot be reached; check the name, or run `hf",
    ):
        watch("nosuch", str(text))
    with pytest.raises(ValueError, match=r"there is no directory no such, and no model on the hub can be called so$"):
        watch("no such", str(text))


def test_a_model_that_reads_no_text_says_how_to_watch_it(folder, text, tmp_path):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=32, patch_size=8)).save_pretrained(tmp_path)
    for file in folder.glob("tokenizer*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(
        ValueError, match=r"reads pixel_values, not text; watch it in Python: with regard\.watch\(model\)"
    ):
        watch(str(tmp_path), str(text))


@pytest.mark.parametrize("columns", [50, 80, 100])
def test_tables_keep_to_the_width_of_the_terminal(columns, folder, text, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    for options in ({}, {"layer": "1", "head": "0"}):
        watch(str(folder), str(text), **options)
        page = capsys.readouterr().out.split("Another head:")[0].split("All heads:")[0]
        wide = max(map(len, page.splitlines()[3:]))
        assert wide <= columns
    assert wide > 50 or columns == 50


def test_a_directory_that_is_no_model_says_what_is_missing(folder, text, tmp_path):
    with pytest.raises(
        ValueError, match=r"has no config\.json; give a directory that model\.save_pretrained\(\) wrote"
    ):
        watch(str(tmp_path), str(text))
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(ValueError, match=r"has no tokenizer; tokenizer\.save_pretrained\('.*'\) adds one"):
        watch(str(tmp_path), str(text))
    (tmp_path / "tokenizer.json").write_text((folder / "tokenizer.json").read_text())
    with pytest.raises(ValueError, match=r"has neither model\.safetensors nor model\.safetensors\.index\.json"):
        watch(str(tmp_path), str(text))


def test_pickled_weights_are_not_read(folder, text, tmp_path):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_text((folder / name).read_text())
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"holds pytorch_model\.bin and no model\.safetensors"):
        watch(str(tmp_path), str(text))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b" \n", "is empty"),
        (b"caf\xe9", r"is not UTF-8 text \(byte 3\); give a text in UTF-8"),
        (b"\x89PNG\r\n", "is a PNG image, not text"),
    ],
)
def test_a_text_that_cannot_be_read_says_why(content, message, folder, text):
    Path(text).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        watch(str(folder), str(text))


def test_json_has_every_mean_and_the_tokens(folder, text, capsys):
    seen = watch(str(folder), str(text), as_json=True)
    written = json.loads(capsys.readouterr().out)
    assert [token.strip() for token in written["tokens"][0]] == TEXT.split()
    assert written["layers"][1]["heads"][2]["entropy"] == pytest.approx(seen[1, 2].summary["entropy"])


def test_a_gpt_2_shows_a_step_as_a_model_of_ours_with_the_same_numbers(folder, text, capsys):
    seen = watch(str(folder), str(text), step="weights", head="1.2")
    row = next(line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["cat@1"])
    assert [float(word) for word in row.split()[1:3]] == pytest.approx(
        seen[1, 2].weights()[0, 1, :2].tolist(), abs=5e-3
    )


def test_steps_of_a_model_of_another_type_are_refused(text, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    message = r"is of type bert; .*, and --step scores needs a model that names its steps; leave the option out"
    with pytest.raises(ValueError, match=message):
        watch(str(tmp_path), str(text), step="scores")


def test_of_a_long_text_the_table_alone_is_printed_and_nothing_is_kept(folder, text, monkeypatch, capsys):
    monkeypatch.setattr("regard.commands.see.LONGEST_KEPT", 11)
    seen = watch(str(folder), str(text))
    out = capsys.readouterr().out
    layer, head = seen.order()[0]
    assert f"One head: regard see {text} --model {folder} --head {layer}.{head}\n" in out
    assert "A row is a token" not in out
    with pytest.raises(ValueError, match="needs the queries and keys"):
        seen[0, 0].weights()
    watch(str(folder), str(text), head="1.2")
    assert "A row is a token" in capsys.readouterr().out
