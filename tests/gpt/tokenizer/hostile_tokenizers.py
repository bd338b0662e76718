"""Hostile tokenizer files: every part alone and every pair of parts of a stage, repeated; models that take for ever.

`cases` makes them, name → content; `judge` reads one and texts with it, and says how it ended and what that took.
Each must load or be refused within 2 seconds of CPU time and the file's size and 50 MB of memory. All of them:

    python tests/gpt/tokenizer/hostile_tokenizers.py
"""

import base64
import json
import resource
import struct
import sys
import tempfile
import time
from itertools import combinations, product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from file_mutations import TEXT, tokenizer_contents
from regard.gpt.tokenizer.tokenizer import Tokenizer
from torture_files import SECONDS, SPARE, peak

CONTENTS = tokenizer_contents()
TEXTS = (TEXT, "a" * 300, "the cat sat on the mat, and 1234567 of them sang. " * 20, "ﷺé猫🐈" * 20)
TIMES = (1, 3, 40)


def replace(content, **pattern):
    return {"type": "Replace", "pattern": pattern, "content": content}


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def growing_charsmap(length):
    """SentencePiece's table, which turns a into so many b."""
    units = [0] * 512
    units[0] = 256 << 10
    units[256 ^ ord("a")] = ord("a") | 256 | ((256 ^ ord("a") ^ 400) << 10)
    units[400] = 1 << 31
    raw = struct.pack("<I", 2048) + struct.pack("<512I", *units) + b"b" * length + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(raw).decode()}


BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
META = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
BERT = {**dict.fromkeys(("clean_text", "handle_chinese_chars", "lowercase"), True), "type": "BertNormalizer"}
TWICE = {"SpecialToken": {"id": "x", "type_id": 0}}, *[{"Sequence": {"id": "A", "type_id": 0}}] * 2
PAIR = {"Sequence": {"id": "B", "type_id": 1}}
TEMPLATE = {
    "single": [*TWICE],
    "pair": [*TWICE, PAIR],
    "special_tokens": {"x": {"id": "x", "ids": [0], "tokens": ["x"]}},
}
# Stage → the field of a Sequence, and parts by name.
PARTS = {
    "normalizer": (
        "normalizers",
        {
            "bytes": {"type": "ByteLevel"},
            "forms": {"type": "NFKD"},
            "other forms": {"type": "NFC"},
            "lower": {"type": "Lowercase"},
            "bert": BERT,
            "doubled": replace("aa", String="a"),
            "much": replace("a" * 60, String="a"),
            "ligature": replace("ﷺ", String="ل"),
            "before": replace("yy", Regex="(?=e)"),
            "borders": replace("yy", Regex=r"\b"),
            "kept": replace("yy", Regex=r"e\K"),
            "nested": replace("yy", Regex="[a[b]]*"),
            "named": replace("yy", Regex="[[:space:]]*"),
            "or nothing": replace("yy", Regex="a|"),
            "letters": replace("aaa", Regex=r"\p{L}"),
            "spaces": replace(" ", Regex=" {2,}"),
            "book": {"type": "Prepend", "prepend": "a" * 9999},
            "mark": {"type": "Prepend", "prepend": "▁"},
            "map": growing_charsmap(100_000),
        },
    ),
    "pre_tokenizer": (
        "pretokenizers",
        {
            "bytes": BYTES,
            "meta": META,
            "slow": split(r"(?:.|.){22}\z|."),
            "slow words": split(r"(?:[a-z ]|[a-z ]){21}[A-Z]|."),
            "slow runs": split("(a+)+$"),
            "empty": split(""),
            "before": split("(?=.)"),
            "letters": {"type": "FixedLength", "length": 1},
            "digits": {"type": "Digits", "individual_digits": True},
        },
    ),
    "post_processor": (
        "processors",
        {"twice": {"type": "TemplateProcessing", **TEMPLATE}, "bytes": BYTES},
    ),
    "decoder": (
        "decoders",
        {
            "empty": replace("yy", String=""),
            "doubled": replace("aa", String="a"),
            "before": replace("yy", Regex="(?=e)"),
            "bpe": {"type": "BPEDecoder", "suffix": ""},
            "ctc": {"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": True},
            "words": {"type": "WordPiece", "prefix": "", "cleanup": True},
            "bytes": BYTES,
            "meta": META,
            "strip": {"type": "Strip", "content": "a", "start": 1 << 24, "stop": 0},
            "fuse": {"type": "Fuse"},
        },
    ),
}


def of_model(kind, **changes):
    return CONTENTS[kind] | {"model": CONTENTS[kind]["model"] | changes}


def cases():
    """Name → the content of a tokenizer.json."""
    made = {}
    for stage, (field, parts) in PARTS.items():
        sets = [(name,) for name in parts] + list(combinations(parts, 2))
        for names, times in product(sets, TIMES):
            sequence = {"type": "Sequence", field: [parts[name] for name in names] * min(times, 60 // len(names))}
            kind = "bytes" if stage != "decoder" else "llama"
            made[f"{stage}: {' + '.join(names)} × {times}"] = CONTENTS[kind] | {stage: sequence}
    for kind in ("bytes", "bert", "llama"):
        vocab = CONTENTS[kind]["model"]["vocab"]
        made[f"{kind}: all ids 0"] = of_model(kind, vocab=dict.fromkeys(vocab, 0))
    vocab = CONTENTS["unigram"]["model"]["vocab"]
    for length in (600, 20_000, 50_000):
        made[f"a piece of {length}"] = of_model("unigram", vocab=[*vocab, ["a" * length, -1.0]])
        made[f"a word of {length}"] = of_model("bert", max_input_chars_per_word=length * 100)
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    added = [{"id": i, "content": "a" * 9000 + str(i), **special} for i in range(50)]
    map_ = growing_charsmap(60)
    made["added tokens that grow"] = CONTENTS["llama"] | {"added_tokens": added, "normalizer": map_}
    return made


def judge(content, path):
    """Load a tokenizer and read with it: how that ended, what it took, and what was wrong with that."""
    path.write_text(json.dumps(content))
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak
    before, start, fault = peak()[1], time.process_time(), None
    try:
        tokenizer = Tokenizer.load(path)
        for text in TEXTS:
            tokenizer.decode(tokenizer.encode(text, special=True))
        ended = "loaded"
    except ValueError as error:
        ended = f"refused: {error}"
    except BaseException as error:
        ended = fault = f"{type(error).__name__}: {error!s:.300}"
    seconds, memory = time.process_time() - start, peak()[0] - before
    if seconds > SECONDS or memory > path.stat().st_size + SPARE:
        fault = f"{seconds:.1f} s and {memory >> 20} MB"
    return {"ended": ended, "seconds": seconds, "memory": memory, "fault": fault}


def warm_up(path):
    """What is imported late, and what Rust reads before its first panic, is no cost of a case."""
    assert judge(CONTENTS["bytes"], path)["ended"] == "loaded"
    assert "retry-limit" in judge(cases()["pre_tokenizer: slow runs × 1"], path)["ended"]


def main():
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        warm_up(path)
        judged = {name: judge(content, path) for name, content in cases().items()}
    for name, one in judged.items():
        if one["fault"]:
            print(f"  {name}: {one['fault']}")
    loaded = sum(one["ended"] == "loaded" for one in judged.values())
    faults = sum(one["fault"] is not None for one in judged.values())
    slowest, largest = (max(judged.items(), key=lambda item: item[1][what]) for what in ("seconds", "memory"))
    print(f"  {len(judged)} hostile tokenizers, {loaded} loaded, {faults} faults")
    print(f"  slowest {slowest[1]['seconds']:.2f} s, {slowest[0]}")
    print(f"  most memory {largest[1]['memory'] >> 20} MB, {largest[0]}")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
