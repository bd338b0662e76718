"""Damaged files, with fixed seeds: each loads or is refused by a ValueError. `make torture` runs ten thousand."""

import json
import mmap
import sys
from pathlib import Path

import pytest
import torch

from file_mutations import Corpus
from regard import GPT
from regard.cli import main
from torture_files import judge, use

needs_proc = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is measured by Linux")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    made = Corpus(tmp_path_factory.mktemp("corpus"))
    for (
        kind,
        source,
        names,
    ) in made.sources:  # what is not damaged loads; and what is imported late is no cost of a case
        use(kind, source if kind == "model" else source / names[0])
    return made


@needs_proc
@pytest.mark.parametrize("first", range(0, 260, 65))
def test_a_damaged_file_loads_or_is_refused(corpus, first, tmp_path):
    judged = [judge(corpus, number, tmp_path / str(number)) for number in range(first, first + 65)]
    assert [one for one in judged if one["fault"]] == []
    assert {one["kind"] for one in judged} == {"model", "tokenizer", "seen", "effects", "atlas"}
    assert {one["ended"] for one in judged} == {"loaded", "refused"}


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    pytest.importorskip("transformers")
    from directory_mutations import Directories, see

    made = Directories(tmp_path_factory.mktemp("directories"))
    for _, source, _ in made.sources:
        see(source)
    return made


@needs_proc
@pytest.mark.parametrize("first", range(0, 212, 53))
def test_a_damaged_model_directory_loads_or_is_refused_on_every_way(directories, first, tmp_path):
    judged = [judge(directories, number, tmp_path / str(number)) for number in range(first, first + 53)]
    assert [one for one in judged if one["fault"]] == []
    assert {one["ended"] for one in judged} == {"loaded", "refused"}


def test_a_random_weight_is_found(directories):
    from directory_mutations import check_weights
    from regard.commands.shared.models import load_reader

    folder = next(source for _, source, _ in directories.sources if source.name == "BertForMaskedLM")
    model = load_reader(str(folder), "cpu")("the cat", None).model
    check_weights(model, folder)
    with torch.no_grad():
        model.encoder.layer[1].attention.self.key.weight[3, 5] += 1
    with pytest.raises(AssertionError, match=r"encoder\.layer\.1\.attention\.self\.key\.weight is random"):
        check_weights(model, folder)


@needs_proc
def test_the_judge_finds_what_is_wrong(corpus, tmp_path, monkeypatch):
    def failing(error):
        def fail(*_):
            raise error

        return fail

    for error, fault in (
        (ValueError("\x1b[2J"), "the message is not printable"),
        (ValueError("x" * 10**5), "or too long"),
        (KeyError("x"), "KeyError"),
        (KeyboardInterrupt("x"), "KeyboardInterrupt"),
    ):
        monkeypatch.setattr("torture_files.use", failing(error))
        assert fault in judge(corpus, 7, tmp_path / fault)["fault"]
    with mmap.mmap(-1, 100 << 20) as block:  # a bytearray may lie in memory that other tests have freed
        monkeypatch.setattr("torture_files.use", lambda *_: block.write(bytes(100 << 20)))
        assert "MB for" in judge(corpus, 7, tmp_path / "memory")["fault"]


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
    with pytest.raises(SystemExit):
        main()
    return capsys.readouterr()


ESCAPE = "\x1b]0;title\x07\x1b[31m"


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"model_type": ESCAPE}),
        ("config.json", {"activation_function": ESCAPE * 1000}),
        ("config.json", {"n_embd": [ESCAPE] * 1000}),
        ("generation_config.json", {"eos_token_id": ESCAPE}),
        ("tokenizer.json", {"normalizer": {"type": ESCAPE}}),
    ],
)
def test_no_escape_sequence_of_a_file_reaches_the_terminal(corpus, file, change, tmp_path, monkeypatch, capsys):
    name = tmp_path / "\x1b[2Jmodel"
    corpus.copy(0, name)
    (name / file).write_text(json.dumps(json.loads((name / file).read_text()) | change))
    told = run(monkeypatch, capsys, "generate", "a", "--model", name)
    assert told.out == ""
    assert told.err.startswith("regard: ")
    assert told.err.endswith("\n")
    assert len(told.err) < 1000
    assert told.err[:-1].isprintable()


def test_no_escape_sequence_of_a_token_or_prompt_reaches_the_terminal(tmp_path, monkeypatch, capsys):
    model = GPT.from_pretrained("tiny")
    model.tokenizer = None
    model.save_pretrained(tmp_path)
    content = json.loads((Path(sys.modules["regard"].__file__).parent / "gpt/tiny/tokenizer.json").read_text())
    vocab = content["model"]["vocab"]
    longest = sorted(vocab, key=vocab.get)[-1]
    content["added_tokens"].append(content["added_tokens"][0] | {"id": vocab[longest] + 1, "content": ESCAPE})
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    for arguments in (
        ("generate", f"a{ESCAPE}", "--max-new-tokens", "3", "--seed", "1"),
        ("see", f"the{ESCAPE} cat", "--step", "scores", "--head", "0.1"),
        ("see", f"the{ESCAPE} cat", "--token", ESCAPE, "--step", "scores"),
    ):
        told = run(monkeypatch, capsys, *arguments, "--model", tmp_path)
        text = (told.out + told.err).replace("\n", "").replace("\t", "")
        assert text
        assert "\x1b" not in text
        assert "\x07" not in text
