"""Whole model directories, and damaged copies of them: tensors, indexes, configs, tokenizers, and files of one another.

`Directories(folder).damaged(number, target)` writes the damaged copy of that number, always the same. `use` opens it on
every way that people have, and compares every weight of the model with the tensors in the files.
"""

import json
import random
import shutil
import struct
from contextlib import suppress
from pathlib import Path

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from file_mutations import Corpus, damaged_bytes, damaged_json, damaged_safetensors, nasty, tokenizer_contents
from regard import GPT
from regard.commands.shared.models import load_gpt, load_reader
from regard.commands.shared.with_transformers import quiet_transformers
from regard.gpt.checkpoint.stored_tensors import list_tensors
from regard.gpt.tokenizer.tokenizer import Tokenizer
from regard.support.printable import printable

INDEX = "model.safetensors.index.json"
SIZES = {
    "vocab_size": 307,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 22,
    "max_position_embeddings": 61,
}
T5_SIZES = {"vocab_size": 307, "d_model": 12, "d_kv": 6, "num_heads": 2, "num_layers": 2, "d_ff": 22}
# Class of transformers → its sizes, and the tokenizer beside it.
FOREIGN = {
    "BertForMaskedLM": (SIZES, "bert"),
    "RobertaForSequenceClassification": (SIZES, "bytes"),
    "GPTNeoXForCausalLM": (SIZES, "qwen"),
    "T5ForConditionalGeneration": (T5_SIZES, "unigram"),
}
COUNTS = (0, 1, 3, 5, 250, 20_000, 200_000, 2**31 - 1, 2**40)
LOST = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, SafetensorError)  # damaged before
PLACES = ("../", "/tmp/", "./", "other-", "\x1b[2J", "a/")


class Directories:
    """Model directories in a folder, and copies of them with damage."""

    def __init__(self, folder):
        self.folder = Path(folder)
        torch.manual_seed(7)
        corpus = Corpus.__new__(Corpus)
        corpus.folder = self.folder
        self.sources = [("directory", path, None) for _, path, _ in corpus._models()] + [*self._foreign()]

    def _foreign(self):
        contents = tokenizer_contents()
        for name, (sizes, tokenizer) in FOREIGN.items():
            path = self.folder / name
            with quiet_transformers():
                made = getattr(transformers, name)
                model = made(made.config_class(**sizes))
                shards = {"max_shard_size": "8KB"} if name.startswith("GPTNeoX") else {}
                model.save_pretrained(path, **shards)
            (path / "tokenizer.json").write_text(json.dumps(contents[tokenizer]))
            config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 61}
            (path / "tokenizer_config.json").write_text(json.dumps(config))
            (path / "special_tokens_map.json").write_text("{}")
            yield "directory", path, None

    def copy(self, number, target):
        """Copy the files of this number as they are."""
        return Path(shutil.copytree(self.sources[number % len(self.sources)][1], target, dirs_exist_ok=True))

    def damaged(self, number, target):
        """Write the damaged copy of this number to `target`; returns its kind and where it is."""
        rng = random.Random(number)
        target = self.copy(number, target)
        for _ in range(rng.choice((1, 1, 1, 2))):
            damage = rng.choice((damage_tensors, damage_tensors, damage_sizes, damage_json, damage_file, self._swap))
            with suppress(*LOST):
                damage(rng, target)
        return "directory", target

    def _swap(self, rng, target):
        """Put a file of another directory in the place of one."""
        other = rng.choice(self.sources)[1]
        path = rng.choice(sorted(other.iterdir()))
        shutil.copy(path, target / path.name)


def weights_in(target):
    return sorted(target.glob("*.safetensors"))


def damage_tensors(rng, target):
    """Drop, rename, add, reshape, cast or spoil a tensor; or lead the index astray."""
    if (target / INDEX).is_file() and rng.random() < 0.3:
        content = json.loads((target / INDEX).read_text())
        name = rng.choice(sorted(content["weight_map"]))
        place = content["weight_map"][name]
        content["weight_map"][name] = rng.choice((rng.choice(PLACES) + place, nasty(rng), place + "x"))
        return (target / INDEX).write_text(json.dumps(content))
    path = rng.choice(weights_in(target))
    tensors = load_file(path)
    name, other = (rng.choice(sorted(tensors)) for _ in range(2))
    tensor, kind = tensors[name].clone(), rng.randrange(10)
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        tensors[name + rng.choice(("x", ".weight", "_old", "\n"))] = tensors.pop(name)
    elif kind == 2:
        tensors[other] = tensor
    elif kind == 3:
        tensors[rng.choice(("x", "lm_head.weight", name.partition(".")[2], "model." + name))] = tensor + 1
    elif kind == 4:
        tensors[name] = tensor.flatten()[: rng.choice((0, 1, 5))]
    elif kind == 5:
        tensors[name] = tensor.mT.contiguous() if tensor.ndim > 1 else tensor[None]
    elif kind == 6:
        tensors[name] = tensor.to(rng.choice((torch.float16, torch.float64, torch.int32, torch.bool, torch.uint8)))
    elif kind in (7, 8):
        tensor.view(-1)[: rng.choice((1, len(tensor)))] = rng.choice((torch.nan, torch.inf, -torch.inf, 1e38))
        tensors[name] = tensor
    else:
        for one in [one for one in tensors if rng.random() < 0.5]:
            del tensors[one]
    return save_file(tensors, path, {"format": "pt"})


def damage_sizes(rng, target):
    """Give settings of config.json other whole numbers, or turn flags."""
    config = json.loads((target / "config.json").read_text())
    numbers = [name for name, value in config.items() if isinstance(value, int)]
    for name in rng.sample(numbers, min(len(numbers), rng.choice((1, 1, 2)))):
        value = config[name]
        config[name] = not value if isinstance(value, bool) else rng.choice((*COUNTS, value + 1, max(value - 1, 0)))
    (target / "config.json").write_text(json.dumps(config))


def damage_json(rng, target):
    """Change values in any of the JSON files."""
    path = rng.choice(sorted(target.glob("*.json")))
    path.write_bytes(damaged_json(rng, json.loads(path.read_bytes())))


def damage_file(rng, target):
    """Damage the bytes of any file, its header, or take it away."""
    path = rng.choice(sorted(target.iterdir()))
    kind, raw = rng.randrange(6), path.read_bytes()
    if kind == 0:
        path.unlink()
    elif kind < 4 and path.suffix == ".safetensors" and len(raw) > 8 and struct.unpack("<Q", raw[:8])[0] < len(raw):
        path.write_bytes(damaged_safetensors(rng, raw))
    else:
        path.write_bytes(damaged_bytes(rng, raw))


def use(path):
    """Open a directory as see, generate and Python do, and read a text; all must work or be refused alike."""
    errors = [error for error in (attempt(way, path) for way in (see, generate, from_python)) if error is not None]
    if errors:  # one message is judged: the worst
        raise max(errors, key=lambda error: (printable(str(error)) != str(error), len(str(error))))


def attempt(way, path):
    try:
        way(path)
    except ValueError as error:
        return error
    return None


def see(path):
    opened = load_reader(str(path), "cpu")("the cat sat", 9)
    with torch.no_grad():
        result = opened.model(**opened.inputs)
    assert result is not None
    if not isinstance(opened.model, GPT):
        check_weights(opened.model, path)


def generate(path):
    load_gpt(str(path), "cpu").generate("the cat", 2, seed=1)


def from_python(path):
    model = GPT.from_pretrained(path)
    model(torch.zeros(1, 2, dtype=torch.long))
    assert model.tokenizer is None or isinstance(model.tokenizer, Tokenizer)


def check_weights(model, path):
    """Every weight of a model is a tensor in its files: none is random."""
    files = {one.file for one in list_tensors(path)[0].values()}  # others may lie there, too
    held = [tensor for file in files for tensor in load_file(file).values()]
    for name, weight in model.named_parameters():
        same = (one for one in held if one.shape == weight.shape)
        assert any(torch.equal(one.to(weight.dtype), weight) for one in same), f"{name} is random"
        assert weight.isfinite().all(), f"{name} is not finite"
