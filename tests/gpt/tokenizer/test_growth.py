"""What parts can do to a text is bounded before one is read; what models have is not refused."""

import json

import pytest
import tokenizers

from file_mutations import TEXT
from gpt.tokenizer.families import families
from gpt.tokenizer.hostile_tokenizers import CONTENTS, PARTS, cases, growing_charsmap, judge, warm_up
from regard.gpt.tokenizer.file_checks import KINDS
from regard.gpt.tokenizer.growth import GROWTH, check_growth, repeats_in_template
from regard.gpt.tokenizer.tokenizer import Tokenizer
from test_hostile_files import needs_proc

FAMILIES = families()
TEXTS = (TEXT, "  Two  spaces, 12345 digits!\n\n\tI'll, ÉTÉ ﷺ ﬁne…  ", "")


@pytest.mark.parametrize("name", FAMILIES)
def test_tokenizers_of_every_family_read_and_write_as_the_library_does(name, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(FAMILIES[name]))
    expected, tokenizer = tokenizers.Tokenizer.from_file(str(path)), Tokenizer.load(path)
    for text in TEXTS:
        ids = expected.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text) == ids
        assert tokenizer.encode(text, special=True) == expected.encode(text).ids
        assert tokenizer.decode(ids) == expected.decode(ids, skip_special_tokens=False)


def test_every_part_with_a_bound_is_one_that_a_file_may_have():
    assert {stage: set(parts) - set(KINDS[stage]) for stage, parts in GROWTH.items()} == {
        stage: set() for stage in GROWTH
    }


def part(stage, name):
    return stage, PARTS[stage][1][name]


@pytest.mark.parametrize(
    ("parts", "culprit"),
    [
        ([part("normalizer", "bytes")] * 3 + [part("pre_tokenizer", "bytes")], "pre_tokenizer ByteLevel"),
        ([part("normalizer", "doubled")] * 7, "normalizer Replace"),
        (
            [part("normalizer", "forms"), part("normalizer", "ligature")] * 2 + [part("normalizer", "forms")],
            "normalizer NFKD",
        ),
        ([("normalizer", growing_charsmap(65))], "normalizer Precompiled"),
        ([part("normalizer", "book")], "normalizer Prepend"),
        ([part("normalizer", "letters")] * 4, "normalizer Replace"),
        ([part("pre_tokenizer", "meta")] * 7, "pre_tokenizer Metaspace"),
        ([part("post_processor", "twice")] * 7, "post_processor TemplateProcessing"),
        ([part("decoder", "bpe")] * 4, "decoder BPEDecoder"),
        ([part("decoder", "ctc")] * 4, "decoder CTC"),
        ([part("decoder", "words")] * 7, "decoder WordPiece"),
    ],
)
def test_parts_that_multiply_a_text_are_refused_by_name(parts, culprit):
    check_growth(parts[:-1])
    with pytest.raises(ValueError, match=rf"^{culprit} is one part too many: together they may make a text at most 64"):
        check_growth(parts)


def test_a_form_of_unicode_and_lower_case_cost_nothing_once():
    forms, lower = part("normalizer", "forms"), part("normalizer", "lower")
    check_growth([forms, *[lower] * 7])
    with pytest.raises(ValueError, match="normalizer Lowercase is one part too many"):
        check_growth([forms, forms, *[lower] * 3])


def test_added_tokens_are_normalized_when_a_file_is_loaded():
    added = [{"content": "a" * 9001, "normalized": True}] * 50
    check_growth([("normalizer", growing_charsmap(30))], added)
    check_growth([("normalizer", growing_charsmap(60))], [one | {"normalized": False} for one in added])
    message = (
        r"450,050 characters of added_tokens are normalized, which may make them 60 times longer; at most 16,777,216"
    )
    with pytest.raises(ValueError, match=message):
        check_growth([("normalizer", growing_charsmap(60))], added)


def test_how_often_a_template_repeats_a_text():
    assert repeats_in_template(PARTS["post_processor"][1]["twice"]) == 2
    assert repeats_in_template(CONTENTS["bert"]["post_processor"]) == 1


@pytest.mark.parametrize("length", [1, 7, 41])
def test_no_part_does_more_to_a_text_than_its_bound(length):
    text = TEXT + "ﷺİΐ ﬃ" * length
    modules = {"normalizer": tokenizers.normalizers, "pre_tokenizer": tokenizers.pre_tokenizers}
    for stage, name in (("normalizer", "NFC"), ("normalizer", "NFD"), ("normalizer", "NFKC"), ("normalizer", "NFKD")):
        grown = getattr(modules[stage], name)().normalize_str("ﷺ" * length)
        assert len(grown) <= GROWTH[stage][name] * length
    for name in ("Lowercase", "BertNormalizer", "ByteLevel"):
        for letter in text:
            assert len(getattr(modules["normalizer"], name)().normalize_str(letter)) <= GROWTH["normalizer"][name]
    pieces = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True).pre_tokenize_str("🐈" * length)
    assert sum(len(piece) for piece, _ in pieces) <= GROWTH["pre_tokenizer"]["ByteLevel"] * length
    assert len(tokenizers.decoders.BPEDecoder("").decode(["a" * length])) <= 3 * length
    assert len(tokenizers.normalizers.Replace("a", "bbb").normalize_str("a" * length)) == 3 * length


ALL = cases()


@needs_proc
def test_hostile_files_are_read_or_refused_in_time_and_memory(tmp_path):
    warm_up(tmp_path / "tokenizer.json")
    some = list(ALL)[::23] + [
        name for name in ALL if "normalizer" not in name and "+" not in name and "slow" not in name
    ]
    judged = {name: judge(ALL[name], tmp_path / "tokenizer.json") for name in some}
    assert {name: one["fault"] for name, one in judged.items() if one["fault"]} == {}
    assert {one["ended"].split(":")[0] for one in judged.values()} == {"loaded", "refused"}


def test_there_are_three_hundred_hostile_files_and_more():
    assert len(ALL) > 300


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bytes: all ids 0", r"the id of .* and .* is 0; each must have its own"),
        ("a piece of 600", "the longest token is 600; it must be at most 512 characters"),
        ("a word of 600", r"max_input_chars_per_word of the WordPiece model is 60000"),
        ("decoder: empty × 1", "pattern of decoder Replace is "),
        ("normalizer: before × 1", "pattern of normalizer Replace is "),
        ("pre_tokenizer: slow × 1", r"the patterns take more than 0\.25 seconds to read \d+ letters"),
    ],
)
def test_what_takes_minutes_is_refused_by_name(name, message, tmp_path, capfd):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(ALL[name]))
    with pytest.raises(ValueError, match=message):
        Tokenizer.load(path)
    assert capfd.readouterr() == ("", "")


def test_a_template_that_repeats_a_text_may_panic_and_says_nothing(tmp_path, capfd):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(ALL["post_processor: twice × 3"]))
    with pytest.raises(ValueError, match="that can be read: tokenizers cannot read it: not yet implemented"):
        Tokenizer.load(path)
    assert capfd.readouterr() == ("", "")
