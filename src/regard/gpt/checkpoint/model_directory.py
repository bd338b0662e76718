"""Where a model is: in a directory, in the package ("tiny"), or on the Hugging Face Hub."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from regard.attention.presets import GPT2_CONFIGS
from regard.gpt.checkpoint.stored_tensors import INDEX, NOTHING_LOADED
from regard.support.files import is_local
from regard.support.printable import readable

PACKAGED = Path(__file__).parents[1] / "tiny"  # the model in the package
# The files that are downloaded: no code, no pickles.
PATTERNS = ["config.json", "generation_config.json", "model*.safetensors", INDEX, "tokenizer.json"]
# Our presets by their names on the hub.
HUB_NAMES = {name: f"openai-community/{name.removesuffix('-small')}" for name in GPT2_CONFIGS}


def find_directory(name_or_dir: str | os.PathLike[str]) -> Path:
    """The directory of a model, downloaded if it is a name on the hub.

    >>> find_directory("tiny").name
    'tiny'
    """
    name, path = os.fspath(name_or_dir), as_path(name_or_dir)
    if path.is_dir():
        return path
    if path.exists():
        raise ValueError(f"{path} is a file; give the directory it lies in. {NOTHING_LOADED}")
    if name == PACKAGED.name or path == PACKAGED:
        if not PACKAGED.is_dir():
            raise ValueError(f"the model in the package, {PACKAGED}, is missing; install regard again, or name another")
        return PACKAGED
    if not isinstance(name_or_dir, str) or is_local(name):
        raise ValueError(f"there is no directory {path}; look for a mistake in its name. {NOTHING_LOADED}")
    return download(HUB_NAMES.get(name, name))


def as_path(name: str | os.PathLike[str]) -> Path:
    """A model's name as a path; a ValueError where no file can have that name."""
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # too long; nobody's home; a null byte
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"no model is called {readable(str(name), 80)}: {reason}. {NOTHING_LOADED}") from None
    return path


def model_inside(directory: Path) -> Path | None:
    """The model in the directory of a training run: `regard train` writes two there."""
    return next((d for d in (directory / "model", directory / "best") if (d / "config.json").is_file()), None)


def download(name: str, patterns: Sequence[str] = PATTERNS) -> Path:
    """The local directory of a model on the hub, with the files of these patterns."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns)))
    except Exception as error:  # no network, no such name, no permission: many types
        raise not_fetched(name, error) from error


def check_hub(name: str) -> None:
    """Refuse a name at once where the hub cannot be reached: transformers would retry for half a minute."""
    from huggingface_hub import constants, try_to_load_from_cache

    try:
        cached = isinstance(try_to_load_from_cache(name, "config.json"), str)
    except ValueError:
        raise ValueError(f"there is no directory {name}, and no model on the hub can be called so") from None
    if cached or constants.HF_HUB_OFFLINE or getproxies().keys() - {"no"}:
        return
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, None)
    except OSError as error:
        raise not_fetched(name, error) from None


def not_fetched(name: str, error: BaseException) -> ValueError:
    """The error of a name that is no directory and cannot be had from the hub, with the reason and the remedy."""
    from huggingface_hub import constants

    near = get_close_matches(name, [*HUB_NAMES, PACKAGED.name], 1, 0.8) if name not in HUB_NAMES.values() else []
    here = f"there is no directory {name}" + (f" (did you mean {near[0]}?)" if near else "")
    host = urlsplit(constants.ENDPOINT).hostname
    if constants.HF_HUB_OFFLINE:
        reason = f"the hub ({host}) is not asked, because HF_HUB_OFFLINE is set"
    elif _is_of_the_network(error):
        reason = f"the hub ({host}) cannot be reached"
    else:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        reason = f"the hub ({host}) does not give it: {first}"
    fetch = f"`hf download {name} --local-dir DIRECTORY`"
    return ValueError(
        f"{here}, and {reason}; check the name, or run {fetch} where there is a network and give that directory. "
        f"{NOTHING_LOADED}"
    )


def _is_of_the_network(error: BaseException | None) -> bool:
    """Did a connection fail, in this error or in one that led to it?"""
    if error is None:
        return False
    names = " ".join(kind.__name__ for kind in type(error).__mro__)
    is_one = re.search(r"Connect|Timeout|gaierror|LocalEntryNotFound", names) is not None
    return is_one or _is_of_the_network(error.__cause__ or error.__context__)
