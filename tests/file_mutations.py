"""Files that regard reads, and damaged copies of them: bytes, JSON values, safetensors headers and reports in them.

`Corpus` writes small valid files once; `Corpus.damaged(number)` gives the damaged copy of that number, always the same.
"""

import copy
import json
import random
import shutil
import struct
from pathlib import Path

import torch

from regard import GPT, GPTConfig, Rotary, atlas, watch
from regard.gpt.checkpoint.saving import save
from regard.gpt.tokenizer.tokenizer import Tokenizer
from regard.heads.change.effects import Effects, Measured
from regard.support.tokens import TextTokens

ESCAPES = ("\x1b]0;title\x07", "\x1b[31mred", "\x9b2J", "\u202egnp.exe", "a\rb", "line\nbreak", "\ud800")
NUMBERS = (-1, 0, 1, 2, 3, 7, 255, 2**15, 2**31 - 5, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 10**30, 0.5, -1e308, 1e308)
OTHERS = (
    None,
    True,
    False,
    "",
    "x",
    "gpt2",
    "a" * 5000 + ".safetensors",
    [],
    {},
    [[]],
    {"type": "Sequence"},
    [1, 2, 3],
    float("nan"),
    float("inf"),
)
DEEP = "lists, {} deep"  # stands for them until the JSON text is written
TEXT = "the cat sat on the mat, the cat sat; naïve 猫 🐈"


def nasty(rng):
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(ESCAPES) * rng.choice((1, 1, 300))
    if kind == 1:
        return DEEP.format(rng.choice((5, 300, 3000)))
    if kind == 2:
        return [rng.choice(OTHERS)] * rng.choice((3, 1000))
    return copy.deepcopy(rng.choice((*NUMBERS, *OTHERS) if kind < 5 else NUMBERS))


def places(value, found=None):
    """Every (container, key) of a JSON value; of long lists and objects only some."""
    found = [] if found is None else found
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    step = max(1, len(items) // 40)
    for key, inner in items[::step]:
        found.append((value, key))
        if isinstance(inner, (dict, list)):
            places(inner, found)
    return found


def damaged_json(rng, value):
    """The JSON text of a value with one to three changes."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        spots = places(value) if isinstance(value, (dict, list)) else []
        if not spots:
            break
        holder, key = rng.choice(spots)
        kind = rng.randrange(7)
        if kind < 3:
            holder[key] = nasty(rng)
        elif kind == 3:
            del holder[key]
        elif kind == 4:
            other, name = rng.choice(spots)
            if name in other if isinstance(other, dict) else name < len(other):
                holder[key] = copy.deepcopy(other[name])
        elif kind == 5 and isinstance(holder, dict):
            holder[rng.choice(ESCAPES) + str(key)] = holder.pop(key)
        elif isinstance(holder[key], int) and not isinstance(holder[key], bool):
            holder[key] += rng.choice((-1, 1, 8, -7))
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    for depth in (5, 300, 3000):
        text = text.replace(json.dumps(DEEP.format(depth)), "[" * depth + "]" * depth)
    if rng.random() < 0.05 and text.startswith('{"'):
        text = text[:1] + text[1:].split(",", 1)[0] + ", " + text[1:]  # the first name twice
    return text.encode("utf-8", "surrogatepass")


def damaged_bytes(rng, raw):
    raw = bytearray(raw)
    for _ in range(rng.choice((1, 1, 4))):
        at = rng.randrange(len(raw) or 1)
        kind = rng.randrange(7)
        if kind == 0:
            del raw[at:]
        elif kind == 1:
            raw[at : at + rng.choice((1, 64))] = b""
        elif kind == 2:
            raw[at : at + 16] = bytes(min(16, len(raw) - at))
        elif kind == 3:
            raw[at:at] = rng.randbytes(rng.choice((1, 16)))
        elif kind == 4:
            raw += rng.randbytes(rng.choice((1, 1000)))
        elif raw:
            raw[min(at, len(raw) - 1)] ^= 1 << rng.randrange(8)
    return bytes(raw)


def damaged_safetensors(rng, raw):
    """A safetensors file whose header, or the report in its metadata, has other values; or other bytes."""
    length = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    reports = [name for name in ("report", "regard.atlas") if name in header.get("__metadata__", {})]
    kind = rng.randrange(10)
    if kind == 0:
        return damaged_bytes(rng, raw)
    if kind == 1 and data:
        return raw[: 8 + length] + damaged_values(rng, data)
    if reports and kind < 9:
        report = json.loads(header["__metadata__"][reports[0]])
        header["__metadata__"][reports[0]] = damaged_json(rng, report).decode("utf-8", "replace")
        new = json.dumps(header).encode()
    else:
        new = damaged_json(rng, header)
    size = len(new) if rng.random() < 0.95 else rng.choice((0, 1, len(new) + 1, 2**40, 2**64 - 1))
    return struct.pack("<Q", size) + new + data


def damaged_values(rng, data):
    """Tensors with other numbers: indices, counts and statistics out of range."""
    at = rng.randrange(max(len(data) // 8, 1)) * 8
    value = rng.choice(
        (b"\xff" * 8, b"\x7f" * 8, struct.pack("<q", 10**12), struct.pack("<f", 1e30) * 2, rng.randbytes(8))
    )
    return data[:at] + value[: len(data) - at] + data[at + 8 :]


class Corpus:
    """Valid files in a folder, and copies of them with damage."""

    def __init__(self, folder):
        self.folder = Path(folder)
        torch.manual_seed(7)
        self.sources = [*self._models(), *self._tokenizers(), *self._seen(), *self._effects(), *self._atlas()]

    def damaged(self, number, target):
        """Write the damaged copy of this number to `target`; returns its kind and the path to load."""
        rng = random.Random(number)
        kind, source, names = self.sources[number % len(self.sources)]
        target = self.copy(number, target)
        name = rng.choice(names)
        raw = (source / name).read_bytes()
        if name.endswith(".safetensors"):
            new = damaged_safetensors(rng, raw)
        else:
            new = damaged_json(rng, json.loads(raw)) if rng.random() < 0.85 else damaged_bytes(rng, raw)
        (target / name).write_bytes(new)
        return kind, target if kind == "model" else target / name

    def copy(self, number, target):
        """Copy the files of this number as they are."""
        _, source, _ = self.sources[number % len(self.sources)]
        return Path(shutil.copytree(source, target, dirs_exist_ok=True))

    def _models(self):
        small = {"vocab_size": 307, "context_length": 13, "num_layers": 2, "d_model": 12, "num_heads": 2}
        llama = {"rotary": Rotary(), "norm": "rms", "feed_forward": "swiglu", "qkv_bias": False, "bias": False}
        configs = {
            "gpt2": GPTConfig(**small),
            "llama": GPTConfig(**small, **llama, num_kv_heads=1),
            "regard": GPTConfig(**small, rotary=Rotary(), qk_norm=True, window=5, end=(3, 5)),
            "sharded": GPTConfig(**small, **{**llama, "qkv_bias": True}, tied=False),
        }
        for name, config in configs.items():
            model = GPT(config)
            model.tokenizer = Tokenizer.train([TEXT], vocab_size=290)
            save(model, self.folder / name, shard_size=20_000 if name == "sharded" else 10**9)
            (self.folder / name / "generation_config.json").write_text('{"eos_token_id": [3, 5], "top_k": 7}')
            names = [path.name for path in sorted((self.folder / name).iterdir()) if "tokenizer" not in path.name]
            yield "model", self.folder / name, [*names, "config.json", "config.json"]

    def _tokenizers(self):
        for name, content in tokenizer_contents().items():
            folder = self.folder / f"tokenizer-{name}"
            folder.mkdir()
            (folder / "tokenizer.json").write_text(json.dumps(content))
            yield "tokenizer", folder, ["tokenizer.json"]

    def _seen(self):
        model = GPT(GPTConfig(vocab_size=307, context_length=31, num_layers=2, d_model=12, num_heads=2)).eval()
        ids, real = torch.randint(0, 290, (2, 7)), torch.rand(1, 1, 7, 7) < 0.7
        every = ("default", "received_mean", "histogram", "top", "map")
        reports = {}
        with torch.no_grad():
            for name, mask, keep in (("kept", real, True), ("few", None, False)):
                with watch(model, collect=every, keep=keep, tokenizer=Tokenizer.train([TEXT], 290)) as reports[name]:
                    model(ids, mask=mask)
            with watch(model, tokenizer=Tokenizer.train([TEXT], 290)) as reports["steps"]:
                model.generate(ids[:1], 4, seed=1)
        for name, seen in reports.items():
            folder = self.folder / f"seen-{name}"
            folder.mkdir()
            seen.save(folder / "seen.safetensors")
            yield "seen", folder, ["seen.safetensors"]

    def _effects(self):
        folder = self.folder / "effects"
        folder.mkdir()
        losses = [torch.rand(5, dtype=torch.float64), torch.rand(3, dtype=torch.float64)]
        changes = [torch.rand(3, len(one), dtype=torch.float64) for one in losses]
        cuts = [((0, 0),), ((0, 1),), ((0, 0), (1, 1))]
        texts = [TextTokens(["a", " b", "c", "猫", ""], parts={3: "猫:1", 4: "猫:2-3"}), TextTokens(["a", " b", "c"])]
        measured = Measured(cuts, losses, changes, [[1, 2], [0]], [2, 2], {(0, 0): "induction"}, texts, "0")
        Effects(measured).save(folder / "effects.json")
        yield "effects", folder, ["effects.json"]

    def _atlas(self):
        folder = self.folder / "atlas"
        folder.mkdir()
        model = GPT(GPTConfig(vocab_size=307, context_length=31, num_layers=2, d_model=12, num_heads=2)).eval()
        measured = atlas(model, [torch.randint(0, 290, (2, 7))], tokenizer=Tokenizer.train([TEXT], 290), probe=True)
        measured.save(folder / "atlas.safetensors")
        yield "atlas", folder, ["atlas.safetensors"]


def tokenizer_contents():
    """One tokenizer.json of each family, small."""
    bytes_ = json.loads(Tokenizer.train([TEXT], vocab_size=300).to_json())
    plain = {"truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None}
    plain |= {"post_processor": None, "decoder": None}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    regex = r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+"
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    space, pieces = {"pattern": {"String": "▁"}, "content": " "}, ["<unk>", "▁", "a", "t", "▁t", "he", "h", "e", "ca"]
    letters = dict(zip(["[UNK]", "[CLS]", "[SEP]", "the", "cat", "##s", "a", "##t"], range(8), strict=True))
    template = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "bytes": bytes_,
        "qwen": bytes_
        | {"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]}},
        "llama": plain
        | {
            "added_tokens": [{"id": 0, "content": "<unk>", **special}],
            "normalizer": {
                "type": "Sequence",
                "normalizers": [
                    {"type": "Prepend", "prepend": "▁"},
                    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                ],
            },
            "decoder": {
                "type": "Sequence",
                "decoders": [
                    {"type": "Replace", **space},
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
                ],
            },
            "model": {
                "type": "BPE",
                **dict.fromkeys(("dropout", "continuing_subword_prefix", "end_of_word_suffix")),
                "unk_token": "<unk>",
                "fuse_unk": True,
                "byte_fallback": True,
                "vocab": dict(zip(pieces, range(9), strict=True)),
                "merges": [["▁", "t"], ["h", "e"]],
            },
        },
        "bert": plain
        | {
            "normalizer": {
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": True,
                "strip_accents": None,
                "lowercase": True,
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": template,
                "pair": [*template, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]}},
            },
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {
                "type": "WordPiece",
                "unk_token": "[UNK]",
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": letters,
            },
        },
        "unigram": plain
        | {
            "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap()},
            "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
            "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
            "model": {
                "type": "Unigram",
                "unk_id": 0,
                "vocab": [[piece, -float(i)] for i, piece in enumerate(pieces)],
                "byte_fallback": False,
            },
        },
    }


def charsmap():
    """A table of replacements as SentencePiece writes it: a double-array trie that turns a into b, and its texts."""
    import base64

    units = [0] * 512
    units[0] = 256 << 10  # the first bytes are at 256 ^ byte
    units[256 ^ ord("a")] = ord("a") | 256 | ((256 ^ ord("a") ^ 400) << 10)  # a text ends here, its value is at 400
    units[400] = 1 << 31
    return base64.b64encode(struct.pack("<I", 2048) + struct.pack("<512I", *units) + b"b\0").decode()
