"""`regard docs [WORD]`: the documentation in the terminal, offline: a page, or the section about a word."""

import os
import pydoc
import shlex
import shutil
import sys
from typing import Annotated

from regard.commands.shared.options import argument
from regard.show.terminal.table import terminal_width, wrapped
from regard.support.printable import styled

_MOST = 5  # other sections that are named
_WIDEST = 100  # columns of prose


def docs(
    words: Annotated[
        list[str] | None,
        argument("A page, a word, or both: layer rotary. [default: list the pages]", metavar="WORD"),
    ] = None,
) -> None:
    """Read the documentation offline.

    Prints a page, or the section that is about a word.
    """
    from regard.commands.shared.pages import contents, find, meaning, pages, plain
    from regard.show.terminal.markdown import draw_markdown

    width = min(terminal_width(), _WIDEST)
    if not words:
        lines = [wrapped(f"{name:<12}{plain(answers)}", width, "  ", " " * 14) for name, answers in contents()]
        lines += ["", "  A page: regard docs watch   A word: regard docs softmax", "  To print: regard card"]
        print("\n" + "\n".join(lines) + "\n")
        return
    page = words[0].removeprefix("docs/").removesuffix(".md")
    if len(words) == 1 and page in pages():
        _show(draw_markdown(pages()[page], width))
        return
    asked = [page, *words[1:]]
    says = meaning(asked)
    first, *others = find(asked)
    also = [f"regard docs {one.page} {shlex.quote(plain(one.heading))}" for one in others]
    also = [one for one in also if len(one) + 15 <= width][:_MOST]  # a command that is to be typed stays on one line
    ways = [f"  Whole page:  regard docs {first.page}"]
    ways += [("  Also about:  " if i == 0 else " " * 15) + one for i, one in enumerate(also)]
    says = f"{wrapped(plain(says), width, then='    ')}\n\n" if says else ""
    _show(says + draw_markdown(first.text, width) + "\n\n" + "\n".join(ways))


def _show(text: str) -> None:
    """Print the text; one that is longer than the terminal is opened in its pager."""
    pager = os.environ.get("PAGER") or "less"
    is_long = text.count("\n") + 3 > shutil.get_terminal_size().lines
    if is_long and sys.stdout.isatty() and sys.stdin.isatty() and shutil.which(shlex.split(pager)[0]):
        os.environ.setdefault("LESS", "-R")  # show colours
        pydoc.pipepager(f"{text}\n", pager)
    else:
        print(f"\n{text}\n", file=styled(sys.stdout))
