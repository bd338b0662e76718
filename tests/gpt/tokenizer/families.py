"""tokenizer.json as the families of models have it, with small vocabularies: the parts are theirs, as published."""

from file_mutations import tokenizer_contents
from gpt.tokenizer.hostile_tokenizers import growing_charsmap, replace

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
DEEPSEEK = (
    r"[\r\n]",
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗ]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    r"[一-龥ࠀ-一가-퟿]+",
)
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
# The longest text in SentencePiece's table of NFKC is 18 characters.
CHARSMAP = growing_charsmap(18)
QUOTES = [replace('"', String="``"), replace('"', String="''")]
SPACES = replace(" ", Regex=" {2,}")


def sequence(field, *parts):
    return {"type": "Sequence", field: list(parts)}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def byte_level(use_regex=False):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def metaspace(scheme="always", is_split=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": is_split}


def template(before, after, vocab):
    special = [{"SpecialToken": {"id": token, "type_id": 0}} for token in (*before, *after)]
    text = [{"Sequence": {"id": one, "type_id": i}} for i, one in enumerate("AB")]
    single = [*special[: len(before)], text[0], *special[len(before) :]]
    tokens = {token: {"id": token, "ids": [vocab[token]], "tokens": [token]} for token in (*before, *after)}
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, text[1]], "special_tokens": tokens}


def families():
    """Name → the content of a tokenizer.json."""
    contents = tokenizer_contents()
    bytes_, llama, bert, unigram = (contents[name] for name in ("bytes", "llama", "bert", "unigram"))
    vocab = bytes_["model"]["vocab"]
    first, last = list(vocab)[:2]
    whisper = template([first, last, first], [last], vocab)
    words = template(["[CLS]"], ["[SEP]"], bert["model"]["vocab"])

    def of_bytes(*splits, **parts):
        before = sequence("pretokenizers", *(split({"Regex": one}) for one in splits), byte_level())
        return bytes_ | {"pre_tokenizer": before} | parts

    nothing = {"normalizer": None, "pre_tokenizer": None, "post_processor": None}
    fallback = [replace(" ", String="▁"), {"type": "ByteFallback"}, {"type": "Fuse"}]
    stripped = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    albert = [*QUOTES, *({"type": kind} for kind in ("NFKD", "StripAccents", "Lowercase")), CHARSMAP, SPACES]
    clip = [{"type": "NFC"}, replace(" ", Regex=r"\s+"), {"type": "Lowercase"}]
    roberta = {"type": "RobertaProcessing", "sep": [last, vocab[last]], "cls": [first, vocab[first]]}
    digits = [{"type": "Punctuation", "behavior": "Contiguous"}, byte_level(True)]
    falcon = [*digits, {"type": "Digits", "individual_digits": False}, split({"Regex": "[0-9][0-9][0-9]"})]
    suffix = bytes_["model"] | {"end_of_word_suffix": None}
    return {
        "gpt2": bytes_ | {"pre_tokenizer": byte_level(True), "post_processor": byte_level(True)},
        "roberta, bart": bytes_ | {"post_processor": {**roberta, "trim_offsets": True, "add_prefix_space": False}},
        "llama 2": llama,
        "mistral": llama | {"normalizer": None, "pre_tokenizer": metaspace("first", is_split=False)},
        "llama 3": of_bytes(LLAMA3, post_processor=sequence("processors", byte_level(), template([first], [], vocab))),
        "qwen": of_bytes(LLAMA3, normalizer={"type": "NFC"}),
        "gpt 4o, phi 4": of_bytes(GPT4O),
        "deepseek": of_bytes(*DEEPSEEK, normalizer=sequence("normalizers")),
        "bloom": of_bytes(BLOOM),
        "gpt neox, phi": bytes_ | {"normalizer": {"type": "NFC"}, "pre_tokenizer": byte_level(True)},
        "falcon": bytes_ | {"pre_tokenizer": sequence("pretokenizers", *falcon)},
        "whisper": bytes_ | {"post_processor": whisper},
        "clip": of_bytes(normalizer=sequence("normalizers", *clip))
        | {"pre_tokenizer": sequence("pretokenizers", split({"Regex": CLIP}, "Removed", invert=True), byte_level())},
        "gemma": llama
        | {
            **nothing,
            "normalizer": replace("▁", String=" "),
            "pre_tokenizer": split({"String": " "}, "MergedWithPrevious"),
            "decoder": sequence("decoders", *fallback),
        },
        "helium": llama
        | {
            "normalizer": sequence("normalizers", {"type": "Prepend", "prepend": " "}, replace("▁", String=" ")),
            "decoder": sequence("decoders", *fallback, stripped),
        },
        "openai-gpt": bytes_
        | {
            "model": suffix,
            "normalizer": bert["normalizer"],
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "decoder": {"type": "BPEDecoder", "suffix": "</w>"},
        },
        "bert": bert | {"post_processor": words},
        "t5": unigram | {"normalizer": CHARSMAP, "pre_tokenizer": metaspace()},
        "xlm-roberta": unigram | {"normalizer": sequence("normalizers", CHARSMAP, SPACES)},
        "nllb": unigram | {"normalizer": sequence("normalizers", CHARSMAP, replace("▁", Regex=" {2,}"))},
        "albert, xlnet": unigram | {"normalizer": sequence("normalizers", *albert)},
        "deberta": unigram
        | {
            "normalizer": sequence(
                "normalizers", {"type": "Strip", "strip_left": True, "strip_right": True}, CHARSMAP, SPACES
            ),
            "pre_tokenizer": sequence("pretokenizers", metaspace()),
        },
        "moonshine": unigram | {"normalizer": sequence("normalizers", replace("", Regex=r"^▁+$"), SPACES)},
        "wav2vec2": bytes_
        | {
            "pre_tokenizer": None,
            "decoder": {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
        },
    }
