"""Models that transformers loads, from files that passed the same checks as those of a GPT of ours.

transformers builds a model from what it finds, gives random weights to what is missing, and follows names in its files
to other files. So it is handed the content of config.json and the tensors, both checked, and no directory to look in;
and a model is only used if every weight in it came from the files. No code that comes with a model is run.
"""

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from inspect import signature
from pathlib import Path
from traceback import walk_tb
from typing import Any

from torch import Tensor, nn

from regard.gpt.checkpoint.model_checks import check_counts, check_finite, no_more_than
from regard.gpt.checkpoint.stored_tensors import (
    FLOATS,
    INDEX,
    NOTHING_LOADED,
    StoredTensor,
    list_tensors,
    listed,
    open_tensors,
    read_json,
    refuse_problems,
)
from regard.gpt.tokenizer.file_checks import (
    LARGEST,
    MOST_CHARACTERS,
    MOST_TOKENS,
    check_built,
    check_token_fields,
    check_tokenizer_file,
    not_a_tokenizer,
)
from regard.gpt.tokenizer.tokenizer import panics_refused
from regard.support.arguments import name_of
from regard.support.printable import readable
from regard.support.untrusted_json import MOST, parse_json

# What transformers reads beside the weights; vocab.json is as large as a vocabulary.
_JSON_FILES = (
    *("config.json", "generation_config.json", INDEX, "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "chat_template.json", "processor_config.json", "preprocessor_config.json"),
)
TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model", "*.tiktoken", "merges.txt")
_MOST_LINES = 250_000  # of a text file, besides one for each 16 bytes
_DIGITS = 31  # of 10³⁰, which is transformers' word for "as long as you like"
_TEMPLATES = ("*.jinja", "additional_chat_templates/*.jinja", "normalizer.json")
# Settings that choose who computes, or send transformers to other files; a model is the same without them.
_IGNORED = re.compile(
    r"_?attn_implementation|_?experts_implementation|fusion_config|distributed_config|transformers_weights|"
    r"configuration_files|auto_map|name_or_path|_name_or_path"
)
# Modules after the last layer, which a model of another task has and this one need not.
_HEADS = re.compile(
    r"cls|score|linear|dense|regression|pred_layer|(\w+_)?(head|classifier|pooler|outputs|predictions?|logits|proj|"
    r"projector|projection|transform|summary|relationship|loss|layer_norm|lm|class)"
)
# Masks and tables in old files, which are computed now.
_BUFFERS = re.compile(
    r"\.(attn|attention)\.(bias|masked_bias)$|"
    r"(inv_freq|position_ids|token_type_ids|num_batches_tracked|final_logits_bias)$"
)


@contextmanager
def quiet_transformers() -> Iterator[Any]:
    """The transformers package without its progress bars, messages and warnings."""
    try:
        import transformers
        from transformers.utils import logging
    except ImportError:  # in part: load_reader found it
        missing = "regard see loads models with transformers, which is missing"
        raise ValueError(f"{missing}; pip install transformers") from None
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield transformers
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def check_files(directory: Path) -> None:
    """Check the JSON and tokenizer files of a model before transformers reads them whole, whatever their size."""
    for name in _JSON_FILES:
        if (directory / name).is_file():
            content = read_json(directory / name, _DIGITS)
            if "token" in name:
                _check_tokens(content, directory / name)
                _check_special(content, directory / name)
            for other in content.get("fast_tokenizer_files") or ():
                if not isinstance(other, str) or not re.fullmatch(r"tokenizer\.[\w.-]*json", other):
                    raise ValueError(f"{directory / name}: {readable(other)} is no plain name of a tokenizer.json")
    for path in directory.glob("tokenizer.*json"):  # also tokenizer.4.0.json
        check_tokenizer_file(path)
    for path in [path for pattern in (*TOKENIZER_FILES, *_TEMPLATES) for path in directory.glob(pattern)]:
        if (size := path.stat().st_size) > LARGEST:
            raise ValueError(f"{path} has {size:,} bytes, more than the {LARGEST:,} that any tokenizer needs")
        if path.name == "vocab.json":
            _check_vocabulary(path)
        if path.suffix == ".txt" and size > _MOST_LINES:
            _check_lines(path)


def _check_tokens(content: Any, path: Path) -> None:
    """Check the added tokens wherever they are in a JSON file: objects with a content."""
    for value in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        if isinstance(value, dict) and "content" in value:
            try:
                check_token_fields(value)
            except ValueError as error:
                raise not_a_tokenizer(path, error) from None
        _check_tokens(value, path)


def _check_special(content: Mapping[str, Any], path: Path) -> None:
    """Bound the number and the length of special tokens, each of which is added, and searched for, by itself."""
    texts = [*_texts({name: value for name, value in content.items() if name != "chat_template"})]
    if len(texts) > MOST_TOKENS or sum(map(len, texts)) > MOST_CHARACTERS:
        raise ValueError(
            f"{path} has {len(texts):,} tokens or settings of {sum(map(len, texts)):,} characters; at most "
            f"{MOST_TOKENS:,} of {MOST_CHARACTERS:,} are read"
        )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(inner)


def _check_lines(path: Path) -> None:
    """Bound the lines of vocab.txt or merges.txt: each is an object of Python, however short it is."""
    size, most = path.stat().st_size, _MOST_LINES + path.stat().st_size // 16
    with path.open("rb") as file:
        lines = sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b""))
    if lines > most:
        raise ValueError(f"{path} has {lines:,} lines in {size:,} bytes, more than the {most:,} that are read")


def _check_vocabulary(path: Path) -> None:
    try:
        raw = path.read_bytes()
        parse_json(raw, MOST + len(raw) // 4)
    except ValueError as error:
        raise not_a_tokenizer(path, error) from None


def load_model(transformers: Any, directory: Path) -> tuple[Any, nn.Module]:
    """The config and the model of a directory, every weight of it from the files there."""
    content = {k: v for k, v in read_json(directory / "config.json").items() if not _IGNORED.fullmatch(k)}
    tensors, where = list_tensors(directory)
    check_counts(content, len(tensors), where)
    is_packed = content.get("quantization_config") is not None
    try:
        config = _config_of(transformers, content)
        with no_more_than(tensors, where, is_packed), ExitStack() as stack:
            files = {one.file: stack.enter_context(open_tensors(one.file)) for one in tensors.values()}
            held = {name: files[one.file].get_tensor(name) for name, one in tensors.items()}
            model, told = _build(transformers, config, held)
    except Exception as error:  # transformers believes config.json, so a wrong value can fail anywhere
        raise ValueError(f"{directory} could not be loaded: {_not_joined(error) or first_line(error)}") from None
    refuse_problems(_problems(model, told, tensors, is_packed), where)
    stored = model.state_dict().keys()
    buffers = {
        name: buffer for name, buffer in model.named_buffers() if name in stored
    }  # some take part, as weights do
    check_finite({**dict(model.named_parameters()), **buffers}, where)
    return config, model.eval()


def _not_joined(error: Exception) -> str:
    """The weights that transformers could not make of several tensors; it names them in what it logs alone."""
    for frame, _ in walk_tb(error.__traceback__):
        if names := getattr(frame.f_locals.get("loading_info"), "conversion_errors", None):
            why = "cannot be joined from the tensors; is one missing, or of another shape?"
            return f"{listed(sorted(names))} {why} {NOTHING_LOADED}"
    return ""


def _config_of(transformers: Any, content: Mapping[str, Any]) -> Any:
    kind = content.get("model_type")
    if not isinstance(kind, str) or kind not in transformers.CONFIG_MAPPING:
        raise ValueError(f"model_type is {readable(repr(kind))}, which this version of transformers does not know")
    return transformers.CONFIG_MAPPING[kind].from_dict(dict(content))


def _build(transformers: Any, config: Any, tensors: dict[str, Tensor]) -> tuple[nn.Module, Mapping[str, Any]]:
    """The model, and what transformers says of its weights.

    Only attention is watched, but the modules of a complete language model have the names that people know. A pooler,
    which comes after all attention, is left out where the files have none.
    """
    architectures = tuple(config.architectures or ())
    generates = any(kind.endswith(("ForCausalLM", "LMHeadModel")) for kind in architectures)
    if type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING and hasattr(transformers, (*architectures, "")[0]):
        generates = False  # FlaubertWithLMHeadModel, which fills gaps
    known = transformers.MODEL_FOR_CAUSAL_LM_MAPPING if generates else transformers.MODEL_MAPPING
    if type(config) not in known:
        raise ValueError(f"transformers has no {architectures[0] if generates else 'model'} for {config.model_type}")
    makers = known[type(config)] if isinstance(known[type(config)], tuple) else (known[type(config)],)
    maker = next((one for one in makers if one.__name__ in architectures), makers[0])
    settings = {"config": config, "state_dict": tensors, "output_loading_info": True, "ignore_mismatched_sizes": True}
    lacks_pooler = "add_pooling_layer" in signature(maker).parameters and not any("pooler" in name for name in tensors)
    model, told = maker.from_pretrained(None, **settings, **({"add_pooling_layer": False} if lacks_pooler else {}))
    return model, told


def _problems(
    model: nn.Module, told: Mapping[str, Any], tensors: Mapping[str, StoredTensor], is_packed: bool
) -> Iterator[str]:
    """What is wrong with the weights of a model: each must be in the files once, of its shape, as numbers with a point.

    A head that this model does not have, and buffers that are computed now, may be there as well.
    """
    needs, base = "config.json needs", getattr(model, "base_model_prefix", "")
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    for name in told["missing_keys"]:
        yield f"{readable(name)} is missing; {needs} it, {shapes.get(name, '')}"
    for name, stored, shape in told["mismatched_keys"]:
        yield f"{readable(name)} is {tuple(stored)}; {needs} {tuple(shape)}"
    for name in told["unexpected_keys"]:
        if not _may_be_there(model, base, name, tensors.get(name)):
            yield f"{readable(name)} is not part of the {type(model).__name__} of config.json"
    yield from (readable(one, 160) for one in told.get("error_msgs") or ())
    yield from _wrong_tensors(model, told, tensors, is_packed)
    if (pair := _untied(model)) is not None:
        yield f"{' and '.join(pair)} differ, but config.json says that they are one tensor (tie_word_embeddings)"


def _wrong_tensors(
    model: nn.Module, told: Mapping[str, Any], tensors: Mapping[str, StoredTensor], is_packed: bool
) -> Iterator[str]:
    """Tensors that are there twice, and weights that are no numbers with a point, by whatever name they are joined."""
    base = getattr(model, "base_model_prefix", "")
    plain, first = {name: _plain_name(name, base) for name in tensors}, dict[str, str]()
    for name in tensors:
        if first.setdefault(plain[name], name) != name:
            yield f"{readable(first[plain[name]])} and {readable(name)} are one and the same tensor"
    buffers = {_plain_name(name, base) for name, _ in model.named_buffers()} | {
        *map(plain.get, told["unexpected_keys"])
    }
    for name in () if is_packed else tensors:
        dtype = tensors[name].stored.dtype
        if dtype not in FLOATS and plain[name] not in buffers and not _BUFFERS.search(name):
            yield f"{readable(name)} is {name_of(dtype)}; weights are float64, float32, float16 or bfloat16"


def _plain_name(name: str, base: str) -> str:
    """The name of a tensor without the model's, and as it is spelt now."""
    spelt = re.sub(r"(^|\.)gamma$", r"\1weight", re.sub(r"(^|\.)beta$", r"\1bias", name))
    return spelt.removeprefix(f"{base}.")


def _may_be_there(model: nn.Module, base: str, name: str, tensor: StoredTensor | None) -> bool:
    """Is a tensor that the model has no place for a buffer of old files, or of a head that another task has?"""
    if tensor is not None and _BUFFERS.search(name) and (not name.endswith("bias") or len(tensor.stored.shape) != 1):
        return True
    at, path = model, name.split(".")
    for depth, part in enumerate(path):
        child = dict(at.named_children()).get(part)
        if child is None:
            inside, is_linear = ".".join(path[:depth]), path[depth + 1 :] in (["weight"], ["bias"])
            known = _HEADS.fullmatch(part) is not None or (part == "decoder" and is_linear)
            return inside in ("", base) and known
        at = child
    return False


def _untied(model: Any) -> tuple[str, str] | None:
    """The names of an embedding and a head that should be one tensor, and are two."""
    try:
        head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    except NotImplementedError:  # a model of another kind
        return None
    weights = [getattr(one, "weight", None) for one in (embedding, head)]
    if not getattr(model.config, "tie_word_embeddings", False) or any(one is None for one in weights):
        return None
    names = {id(tensor): name for name, tensor in model.named_parameters(remove_duplicate=False)}
    first, second = weights
    return None if first is second else (names.get(id(first), "the embedding"), names.get(id(second), "the head"))


def load_tokenizer(transformers: Any, directory: Path, config: Any) -> Any:
    """The tokenizer of a directory whose files were checked; a failure is one line with a remedy."""
    try:
        with panics_refused("tokenizers cannot read it", hold_stderr=True):
            tokenizer = transformers.AutoTokenizer.from_pretrained(directory, config=config, trust_remote_code=False)
            if (backend := getattr(tokenizer, "backend_tokenizer", None)) is not None:
                check_built(backend)
            return tokenizer
    except Exception as error:
        remedy = f"tokenizer.save_pretrained({str(directory)!r}) adds one"
        raise ValueError(f"{directory} has no tokenizer that can be read: {first_line(error)}; {remedy}") from None


def first_line(error: BaseException) -> str:
    """The first line of an error, or its type."""
    return readable((str(error).strip() or type(error).__name__).splitlines()[0], 300)
