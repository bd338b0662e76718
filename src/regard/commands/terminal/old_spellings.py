"""Options that `regard see` had before there were `regard page` and `regard compare`. To be removed in 0.3."""

import shlex
from collections.abc import Sequence

_PAGE = {"-o", "--output", "--open", "--steps", "--exact", "--effect", "--ladder"}
_COMPARE = {"--against", "--against-model", "--against-head", "--cut", "--to"}
_SWITCHES = {"--all", "--json", "--open", "--effect", "--ladder"}
_TERMINAL = {"--all", "--json", "--step", "--save"}  # what a page leaves out


def new_spelling(option: str, typed: Sequence[str]) -> str | None:
    """What to type instead of `regard see` with these words, where this option has gone to another command.

    >>> new_spelling("-o", ["The cat", "-o", "page.html", "--all"])
    "-o is an option of regard page: regard page 'The cat' -o page.html"
    >>> new_spelling("--against", ["The cat", "--against=The dog"])
    "--against is now: regard compare 'The cat' 'The dog'"
    """
    if option not in _PAGE | _COMPARE:
        return None
    texts, options = _read(typed)
    if options.keys() & {"-o", "--output"}:
        options = {name: value for name, value in options.items() if name not in _TERMINAL}
    if not options.keys() & _COMPARE:
        return f"{option} is an option of regard page: {_command('page', texts, list(options.items()))}"
    words = []
    if "--against" in options:
        texts = [*(texts or ["TEXT"]), options.pop("--against")]
    if "--against-model" in options:
        words += [("--model", options.pop("--model", "tiny")), ("--model", options.pop("--against-model"))]
    if "--head" in options and "--layer" in options:
        options["--head"] = f"{options.pop('--layer')}.{options['--head'].rpartition('.')[2]}"
    if "--against-head" in options:
        words += [("--head", options.pop("--head", "HEAD")), ("--head", options.pop("--against-head"))]
    moved = "is an option of regard compare" if option in ("--cut", "--to") else "is now"
    return f"{option} {moved}: {_command('compare', texts, [*words, *options.items()])}"


def _read(typed: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Texts, and options with their values; "" for a switch."""
    texts, options, words = [], {}, iter(typed)
    for word in words:
        name, equals, value = word.partition("=")
        if word == "-" or not word.startswith("-"):
            texts.append(word)
        elif word.startswith("-o") and len(word) > 2:
            options["-o"] = word[2:]
        else:
            options[name] = value if equals or name in _SWITCHES else next(words, "")
    return texts, options


def _command(name: str, texts: Sequence[str], options: Sequence[tuple[str, str]]) -> str:
    words = [word for option, value in options for word in ([option] if option in _SWITCHES else [option, value])]
    return shlex.join(["regard", name, *texts, *words])
