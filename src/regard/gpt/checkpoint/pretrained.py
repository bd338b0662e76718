"""Checkpoints: a model from a directory or by its name, and into a directory that transformers reads too.

Everything is checked before anything is loaded: config.json, the headers of the files, and every tensor's name and
shape. Saving writes all files beside the old ones first and puts them in place last.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.arguments import check_whole
from regard.files import Stored, atomically, contents, read_json, readable, write_through
from regard.gpt.checkpoint.config_json import config_from_transformers, config_to_transformers, end_from_transformers
from regard.gpt.checkpoint.weight_names import BUFFERS, HEAD, PREFIX, Place, places
from regard.gpt.config import PRESETS, GPTConfig
from regard.gpt.model import GPT
from regard.gpt.tokenizer import Tokenizer

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model.pt", "model.pt", "model.pth")
# And nothing else, code least of all.
FETCHED = ["config.json", "generation_config.json", "model*.safetensors", INDEX, "tokenizer.json"]
BOX = Path(__file__).parents[1] / "tiny"  # the model in the box
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
NOTHING = "Nothing was loaded."

# Our presets by the names they have on the hub.
ON_THE_HUB = {
    "gpt2-small": "openai-community/gpt2",
    "gpt2-medium": "openai-community/gpt2-medium",
    "gpt2-large": "openai-community/gpt2-large",
    "gpt2-xl": "openai-community/gpt2-xl",
}


class _NoStart(TorchFunctionMode):
    """No random start for weights that are about to be loaded: on the meta device it alone would take seconds."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.normal_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


class _Found(NamedTuple):
    """A tensor on the disk."""

    file: Path
    name: str
    stored: Stored


def load(
    name_or_dir: str | os.PathLike[str],
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> GPT:
    """A model from a directory that transformers or `save` wrote, or by its name on the Hugging Face Hub.

    >>> import tempfile
    >>> directory = tempfile.mkdtemp()
    >>> save(GPT(GPTConfig.preset("tiny", vocab_size=307, num_layers=1)), directory)
    >>> load(directory).config.vocab_size
    307

    It takes GPT-2, Llama, Mistral, Qwen 2 and Qwen 3. The directory holds config.json, and model.safetensors or its
    shards with their index; tokenizer.json, where it is there, becomes model.tokenizer. dtype is that of the file
    unless told, and float32 for "tiny", the model in the box. The model is in eval mode.
    """
    if dtype is not None and dtype not in FLOATS:
        raise ValueError(f"dtype ({dtype}) must be one of {', '.join(map(str, FLOATS))}. {NOTHING}")
    directory = _directory(name_or_dir)
    if not (directory / "config.json").is_file():
        inside = next((d for d in (directory / "model", directory / "best") if (d / "config.json").is_file()), None)
        remedy = "is it the directory of a model?" if inside is None else f"did you mean {inside}?"
        raise ValueError(f"{directory} has no config.json; {remedy} {NOTHING}")
    told = read_json(directory / "config.json")
    config = config_from_transformers(told, str(directory / "config.json"))
    generation = directory / "generation_config.json"
    if generation.is_file():
        config = config.with_(end=end_from_transformers(read_json(generation), config, str(generation)))
    found, where = _tensors(directory)
    if config.num_layers > len(found):
        raise ValueError(
            f"{directory / 'config.json'}: {config.num_layers} layers cannot be made of the {len(found)} tensors in "
            f"{where.name}; the two do not belong together. {NOTHING}"
        )
    wanted = places(config, told["model_type"])
    sources = _matched(config, told["model_type"], wanted, found, where)
    if dtype is None:  # the box is packed in 16 bits to be small, but a CPU is quickest in 32
        dtype = torch.float32 if directory == BOX else _dtype(sources, where)
    tokenizer = Tokenizer.load(directory) if (directory / "tokenizer.json").is_file() else None

    with torch.device("meta"), _NoStart():
        model = GPT(config)
    model = model.to(dtype).to_empty(device="cpu" if device is None else device)
    _fill(model, wanted, sources)
    model.tokenizer = tokenizer
    return model.eval()


def save(
    model: GPT,
    directory: str | os.PathLike[str],
    *,
    shard_size: int = 5_000_000_000,
    state: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a model to a directory: config.json, model.safetensors, and tokenizer.json where it has a tokenizer.

    transformers.AutoModelForCausalLM.from_pretrained(directory) gives the same results. A model that transformers
    has no class for (layer norms with rotary positions, say) is written with our own names, for `load` alone.

    shard_size: how many bytes a file may have; larger models are written in shards, with an index.
    state: the weights, where they are not in the model itself but gathered from many processes.

    A checkpoint that is there already is replaced once all of the new one is on the disk. If that fails (a full
    disk), it is untouched.
    """
    check_whole(shard_size=shard_size)
    directory, weights = Path(directory), model.state_dict() if state is None else state
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory} is a file; give the name of a directory")
    told = config_to_transformers(model.config)
    wanted = places(model.config, told["model_type"])
    missing = [name for name in wanted if name not in weights or weights[name].is_meta]
    if missing:
        raise ValueError(f"the model has no weights for {_cut(missing)}; was a layer replaced? Nothing was saved.")
    told["dtype"] = str(weights["token_embedding.weight"].dtype).removeprefix("torch.")
    prefix = PREFIX[told["model_type"]]
    shards = list(_shards(wanted, weights, shard_size))
    files = [f"model-{n:05}-of-{len(shards):05}.safetensors" for n in range(1, len(shards) + 1)]
    files = [WHOLE] if len(shards) == 1 else files
    texts = {"config.json": _json(told)}
    if len(shards) > 1:
        at = {_prefixed(name, prefix): file for file, shard in zip(files, shards, strict=True) for name in shard}
        total = sum(weights[name].nbytes for name in wanted)
        texts[INDEX] = _json({"metadata": {"total_size": total}, "weight_map": at})
    if (directory / "generation_config.json").is_file():  # of the model before: it would say what ends this one's texts
        texts["generation_config.json"] = _json({k: told[k] for k in ("eos_token_id",) if told.get(k) is not None})
    if model.tokenizer is not None and not _holds(directory, model.tokenizer):
        texts |= _tokenizer_files(model.tokenizer, model.config)

    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as all_or_nothing:
        for name, text in texts.items():
            all_or_nothing.enter_context(atomically(directory / name)).write_text(text, encoding="utf-8")
        for file, shard in zip(files, shards, strict=True):
            tensors = {_prefixed(name, prefix): _assembled(parts, weights) for name, parts in shard.items()}
            write_through(all_or_nothing.enter_context(atomically(directory / file)), tensors, {"format": "pt"})
    # What an earlier checkpoint had and this one has not would be found first, or add up to another model.
    for old in directory.iterdir():
        if old.name not in (*files, *texts) and (old.name in (WHOLE, INDEX) or SHARD.fullmatch(old.name)):
            old.unlink()


def _directory(name_or_dir: str | os.PathLike[str]) -> Path:
    name, path = os.fspath(name_or_dir), Path(name_or_dir).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise ValueError(f"{path} is a file; give the directory it lies in. {NOTHING}")
    if name == BOX.name or path == BOX:
        if not BOX.is_dir():
            raise ValueError(f"there is no model in the box: {BOX} is missing; install regard again, or name another")
        return BOX
    is_path = not isinstance(name_or_dir, str) or path.is_absolute() or name.startswith((".", "~"))
    if is_path or name.count("/") > 1 or name.endswith("/") or (os.sep != "/" and os.sep in name):
        raise ValueError(f"there is no directory {path}; look for a mistake in its name. {NOTHING}")
    return _fetched(ON_THE_HUB.get(name, name))


def _fetched(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=FETCHED))
    except Exception as error:  # no network, no such name, no permission: many kinds, one remedy
        near = get_close_matches(name, [*ON_THE_HUB, BOX.name], 1, 0.8)
        remedy = f"Did you mean {near[0]}? Else look" if near and name not in ON_THE_HUB.values() else "Look"
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(
            f"{name} is no directory here and could not be fetched from the Hugging Face Hub ({reason}). {remedy} for "
            "a mistake in its name, or fetch it where there is a network (`hf download "
            f"{name} --local-dir DIRECTORY`) and give its directory. {NOTHING}"
        ) from error


def _tensors(directory: Path) -> tuple[dict[str, _Found], Path]:
    """What the files of a directory hold, by their headers; and the file to name when something is wrong."""
    if (directory / WHOLE).is_file():
        file = directory / WHOLE
        return {name: _Found(file, name, stored) for name, stored in contents(file).items()}, file
    if (directory / INDEX).is_file():
        return _sharded(directory), directory / INDEX
    pickles = [name for name in PICKLES if (directory / name).exists()]
    if pickles:
        raise ValueError(
            f"{directory} holds {pickles[0]} and no {WHOLE}. Opening a pickle runs whatever code is in it, so it is "
            "not opened here; if you trust it, convert it with transformers: "
            f"AutoModelForCausalLM.from_pretrained({str(directory)!r}).save_pretrained(DIRECTORY). {NOTHING}"
        )
    raise ValueError(f"{directory} has neither {WHOLE} nor {INDEX}; is it the directory of a model? {NOTHING}")


def _sharded(directory: Path) -> dict[str, _Found]:
    index = directory / INDEX
    at = read_json(index).get("weight_map")
    if not isinstance(at, dict) or not at or not all(isinstance(file, str) for file in at.values()):
        raise ValueError(f"{index}: weight_map must give a file for every tensor; download it again. {NOTHING}")
    for file in sorted(set(at.values())):
        if not re.fullmatch(r"[\w-][\w.-]*\.safetensors", file):  # no way out of the directory
            raise ValueError(f"{index}: {file[:80]!r} is no plain name of a .safetensors file. {NOTHING}")
        if not (directory / file).is_file():
            raise ValueError(f"{index}: {file} is not there; download it too. {NOTHING}")
    found: dict[str, _Found] = {}
    for file in sorted(set(at.values())):
        held, promised = contents(directory / file), {name for name, shard in at.items() if shard == file}
        for wrong, what in ((promised - held.keys(), "should hold"), (held.keys() - promised, "should not hold")):
            if wrong:
                raise ValueError(
                    f"{directory / file}: by the index it {what} {_cut(sorted(wrong))}; "
                    f"download the files again, together. {NOTHING}"
                )
        found |= {name: _Found(directory / file, name, stored) for name, stored in held.items()}
    return found


def _matched(
    config: GPTConfig, kind: str, wanted: Mapping[str, Place], found: Mapping[str, _Found], where: Path
) -> dict[str, _Found]:
    """Name in `places` → tensor on the disk, all of them and in the right shape; or a list of all that is wrong."""
    prefix = PREFIX[kind]
    there: dict[str, _Found] = {}
    for name, tensor in found.items():
        bare = name.removeprefix(prefix)
        if bare in there:
            raise ValueError(
                f"{where}: {readable(there[bare].name)} and {readable(name)} are one and the same tensor. {NOTHING}"
            )
        there[bare] = tensor
    needed = {place.name: place.shape for place in wanted.values()}
    embedding = wanted["token_embedding.weight"].name
    if config.tied and HEAD in there and kind != "regard":
        # One tensor under two names. Some files keep only the other one.
        head = there.pop(HEAD)
        same = there.setdefault(embedding, head)
        if same is not head and head.stored == same.stored and not torch.equal(_whole(head), _whole(same)):
            raise ValueError(
                f"{where}: {head.name} and {same.name} differ, but config.json says that they are one tensor; "
                f"set tie_word_embeddings to false there. {NOTHING}"
            )
    prefixed = prefix if any(tensor.name.startswith(prefix) for tensor in found.values()) else ""
    model, wrong = _called(config), list[str]()
    for name, shape in needed.items():
        if name not in there:
            wrong.append(f"{_prefixed(name, prefixed)} is missing; {model} needs it, {shape}")
        elif there[name].stored.shape != shape:
            wrong.append(f"{readable(there[name].name)} is {there[name].stored.shape}; {model} needs {shape}")
        elif there[name].stored.dtype not in FLOATS:
            stored = str(there[name].stored.dtype).removeprefix("torch.")
            wrong.append(f"{readable(there[name].name)} is {stored}; weights are float64, float32, float16 or bfloat16")
    for name in there.keys() - needed.keys():
        if kind == "regard" or not name.endswith(BUFFERS):
            wrong.append(f"{readable(there[name].name)} is not part of {model}")
    if len(wrong) == 1:
        raise ValueError(f"{where.name}: {wrong[0]}. {NOTHING}")
    if wrong:
        listed = "\n".join(f"  {line}" for line in sorted(wrong)[:10])
        more = f"\n  and {len(wrong) - 10} more" if len(wrong) > 10 else ""
        raise ValueError(f"{where.name}: {len(wrong)} tensors do not fit.\n{listed}{more}\n{NOTHING}")
    return {name: there[name] for name in needed}


def _dtype(sources: Mapping[str, _Found], where: Path) -> torch.dtype:
    """The dtype of all weights."""
    counts = Counter(tensor.stored.dtype for tensor in sources.values())
    if len(counts) > 1:
        told = ", ".join(f"{n} of {dtype}" for dtype, n in counts.most_common())
        raise ValueError(f"{where}: tensors have several dtypes, {told}; choose one with dtype=. {NOTHING}")
    return next(iter(counts))


def _fill(model: GPT, wanted: Mapping[str, Place], sources: Mapping[str, _Found]) -> None:
    """Copy each tensor into its parameter, straight from the file: nothing is in memory twice."""
    from safetensors import safe_open

    parameters = dict(model.named_parameters())
    assert parameters.keys() == wanted.keys()
    with torch.no_grad(), ExitStack() as opened:
        files = {tensor.file: None for tensor in sources.values()}
        handles = {file: opened.enter_context(safe_open(file, framework="pt")) for file in files}
        for name, place in wanted.items():
            source = sources[place.name]
            tensor = handles[source.file].get_slice(source.name)  # nothing is read yet
            if place.part is None:
                tensor = tensor[:]
            else:
                tensor = tensor[(slice(None),) * (len(place.shape) - 1) + (slice(*place.part),)]
            parameters[name].copy_(tensor.mT if place.transposed else tensor)


def _whole(tensor: _Found) -> Tensor:
    from safetensors import safe_open

    with safe_open(tensor.file, framework="pt") as file:
        found: Tensor = file.get_tensor(tensor.name)
        return found


def _shards(
    wanted: Mapping[str, Place], weights: Mapping[str, Tensor], shard_size: int
) -> Iterator[dict[str, list[tuple[str, Place]]]]:
    """For each file: the names of its tensors, and which of our weights make up each."""
    whole: dict[str, list[tuple[str, Place]]] = {}
    for name, place in wanted.items():
        whole.setdefault(place.name, []).append((name, place))
    shard: dict[str, list[tuple[str, Place]]] = {}
    room = shard_size
    for theirs, parts in whole.items():
        nbytes = sum(weights[name].nbytes for name, _ in parts)
        if shard and nbytes > room:
            yield shard
            shard, room = {}, shard_size
        shard[theirs] = parts
        room -= nbytes
    yield shard


def _assembled(parts: list[tuple[str, Place]], weights: Mapping[str, Tensor]) -> Tensor:
    """A tensor as the file has it: turned round, or put together from parts."""
    tensors = [weights[name].mT if place.transposed else weights[name] for name, place in parts]
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors, dim=-1)


def _tokenizer_files(tokenizer: Tokenizer, config: GPTConfig) -> dict[str, str]:
    told: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": config.context_length}
    end = next(iter(config.ends), tokenizer.end)
    if end is not None and end < tokenizer.vocab_size:
        told |= {"eos_token": tokenizer.token(end)}
    return {"tokenizer.json": str(tokenizer), "tokenizer_config.json": _json(told)}


def _holds(directory: Path, tokenizer: Tokenizer) -> bool:
    """Is this tokenizer there already? Then its files stay, with what else they say (a chat's template)."""
    if not (directory / "tokenizer.json").is_file() or not (directory / "tokenizer_config.json").is_file():
        return False
    try:
        return Tokenizer.load(directory) == tokenizer
    except ValueError:
        return False


def _called(config: GPTConfig) -> str:
    """The preset that this is, for messages."""
    alike = {"end": None, "dropout": 0.0}
    same = (name for name, preset in PRESETS.items() if preset.with_(**alike) == config.with_(**alike))
    return next(same, "config.json")


def _prefixed(name: str, prefix: str) -> str:
    return name if name == HEAD else prefix + name


def _cut(names: list[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(map(readable, names[:10])) + more


def _json(told: object) -> str:
    return json.dumps(told, indent=2) + "\n"
