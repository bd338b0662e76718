"""Model, tokenizer and tokens of `regard train`."""

import pytest
import torch

from regard.gpt import GPT, GPTConfig
from regard.gpt.tokenizer.tokenizer import Tokenizer
from regard.gpt.train.options import ModelOptions, for_command
from regard.gpt.train.prepare import prepare
from regard.gpt.train.processes import Processes

TEXT = "".join(f"The {a} cat sat on the {b} mat.\n" for a in ("old", "red", "shy") for b in ("new", "wet", "big")) * 9


@pytest.fixture
def files(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    return [tmp_path / "text.txt"]


@pytest.fixture
def tokenizer(tmp_path):
    tokenizer = Tokenizer.train([TEXT], vocab_size=263)
    tokenizer.save(tmp_path / "tokenizer.json")
    return tokenizer


def prepared(files, out, tokenizer=None, **flags):
    source = ModelOptions(
        tokenizer=tokenizer, **{name: flags.pop(name) for name in ("model", "dropout") if name in flags}
    )
    options = for_command(source, cuda=False, out=out, context_length=11, **flags)
    return prepare(files, source, options, Processes())


def test_a_new_model_has_the_vocabulary_and_the_end_of_its_tokenizer(files, tmp_path, tokenizer):
    model, tokens = prepared(files, tmp_path / "run", tmp_path / "tokenizer.json", dropout=0.25)
    assert model.tokenizer == tokenizer
    assert (model.config.vocab_size, model.config.end) == (263, tokenizer.end)
    assert (model.config.context_length, model.config.dropout) == (11, 0.25)
    assert tokens.ids.to(torch.int64).tolist() == [*tokenizer.encode(TEXT), tokenizer.end]


def test_the_seed_decides_the_initial_weights(files, tmp_path, tokenizer):
    one, same, other = (
        prepared(files, tmp_path / f"run{n}", tmp_path / "tokenizer.json", seed=seed)[0]
        for n, seed in enumerate((3, 3, 5))
    )
    weights = [model.token_embedding.weight for model in (one, same, other)]
    assert weights[0].equal(weights[1])
    assert not weights[0].equal(weights[2])


def test_a_run_keeps_its_tokenizer_until_it_starts_over(files, tmp_path, capsys):
    first, _ = prepared(files, tmp_path / "run")
    said = capsys.readouterr().err
    assert "no tokenizer given: training one of 4,096 tokens on the data" in said
    assert "tokens.bin written: the texts as token ids" in said
    files[0].write_text("something else entirely " * 99)
    again, _ = prepared(files, tmp_path / "run")
    assert again.tokenizer == first.tokenizer
    assert capsys.readouterr().err == "  tokens.bin written: text.txt changed\n"
    fresh, _ = prepared(files, tmp_path / "run", resume=False)
    assert fresh.tokenizer != first.tokenizer


def test_a_pretrained_model_keeps_its_weights_and_tokenizer(files, tmp_path, tokenizer):
    torch.manual_seed(1)
    model = GPT(GPTConfig(vocab_size=263, context_length=13, num_layers=1, d_model=8, num_heads=2))
    model.tokenizer = tokenizer
    model.save_pretrained(tmp_path / "model")
    loaded, tokens = prepared(files, tmp_path / "run", model=tmp_path / "model")
    assert loaded.tokenizer == tokenizer
    assert loaded.config.context_length == 13
    assert all(p.equal(q) for p, q in zip(loaded.parameters(), model.parameters(), strict=True))
    assert len(tokens.ids) == len(tokenizer.encode(TEXT)) + 1


def test_a_pretrained_model_without_a_tokenizer_asks_for_one(files, tmp_path):
    GPT(GPTConfig(vocab_size=263, context_length=13, num_layers=1, d_model=8, num_heads=2)).save_pretrained(
        tmp_path / "m"
    )
    with pytest.raises(
        ValueError, match=r"the model has no tokenizer.json, so no text can be read; name one with --tok"
    ):
        prepared(files, tmp_path / "run", model=tmp_path / "m")


def test_dropout_of_a_pretrained_model_is_refused_before_anything_is_written(files, tmp_path):
    with pytest.raises(ValueError, match="--dropout is for a new model; one from a directory has its own"):
        prepared(files, tmp_path / "run", model="tiny", dropout=0.1)
    assert not (tmp_path / "run").exists()


def test_a_damaged_tokenizer_of_a_run_is_refused_and_the_remedy_works(files, tmp_path, capsys):
    first, _ = prepared(files, tmp_path / "run")
    path = tmp_path / "run" / "tokenizer.json"
    right = path.read_bytes()
    path.write_bytes(right.replace(b"Gcat", b"Gcot").replace(b"\xc4\xa0cat", b"\xc4\xa0cot"))
    assert path.read_bytes() != right
    with pytest.raises(
        ValueError,
        match=r"tokenizer.json is damaged: it does not have the hash in hashes.json. Restore it .*, or remove it: then",
    ):
        prepared(files, tmp_path / "run")
    path.unlink()
    again, _ = prepared(files, tmp_path / "run")
    assert path.read_bytes() == right
    assert again.tokenizer == first.tokenizer


def test_a_damaged_tokenizer_that_can_be_had_again_is_written_again(files, tmp_path, tokenizer, capsys):
    given = tmp_path / "tokenizer.json"
    prepared(files, tmp_path / "run", given)
    path = tmp_path / "run" / "tokenizer.json"
    path.write_bytes(bytes(99))
    capsys.readouterr()
    model, _ = prepared(files, tmp_path / "run", given)
    assert capsys.readouterr().err == "  tokenizer.json written: it was damaged\n"
    assert model.tokenizer == tokenizer == Tokenizer.load(path)
