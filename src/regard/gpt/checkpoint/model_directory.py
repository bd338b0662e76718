"""Where a model is: in a directory, in the package ("tiny"), or on the Hugging Face Hub."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

from regard.gpt.checkpoint.stored_tensors import INDEX, NOTHING_LOADED

PACKAGED = Path(__file__).parents[1] / "tiny"  # the model in the package
# The files that are downloaded: no code, no pickles.
PATTERNS = ["config.json", "generation_config.json", "model*.safetensors", INDEX, "tokenizer.json"]
# Our presets by their names on the hub.
HUB_NAMES = {
    "gpt2-small": "openai-community/gpt2",
    "gpt2-medium": "openai-community/gpt2-medium",
    "gpt2-large": "openai-community/gpt2-large",
    "gpt2-xl": "openai-community/gpt2-xl",
}


def find_directory(name_or_dir: str | os.PathLike[str]) -> Path:
    """The directory of a model, downloaded if it is a name on the hub.

    >>> find_directory("tiny").name
    'tiny'
    """
    name, path = os.fspath(name_or_dir), Path(name_or_dir).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise ValueError(f"{path} is a file; give the directory it lies in. {NOTHING_LOADED}")
    if name == PACKAGED.name or path == PACKAGED:
        if not PACKAGED.is_dir():
            raise ValueError(f"the model in the package, {PACKAGED}, is missing; install regard again, or name another")
        return PACKAGED
    is_path = not isinstance(name_or_dir, str) or path.is_absolute() or name.startswith((".", "~"))
    if is_path or name.count("/") > 1 or name.endswith("/") or (os.sep != "/" and os.sep in name):
        raise ValueError(f"there is no directory {path}; look for a mistake in its name. {NOTHING_LOADED}")
    return download(HUB_NAMES.get(name, name))


def download(name: str) -> Path:
    """The local directory of a model on the hub; an error says how to get it otherwise."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=PATTERNS))
    except Exception as error:  # no network, no such name, no permission: many types, one remedy
        near = get_close_matches(name, [*HUB_NAMES, PACKAGED.name], 1, 0.8)
        remedy = f"Did you mean {near[0]}? Else look" if near and name not in HUB_NAMES.values() else "Look"
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(
            f"{name} is no directory here and could not be fetched from the Hugging Face Hub ({reason}). {remedy} for "
            "a mistake in its name, or fetch it where there is a network (`hf download "
            f"{name} --local-dir DIRECTORY`) and give its directory. {NOTHING_LOADED}"
        ) from error
