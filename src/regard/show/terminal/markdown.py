"""A page of docs/ in a terminal: Markdown drawn by rich, two columns from the left, without colour where it is piped.

Pictures are left out and links are their words. Comments that make a line of code too long go below it, indented.
"""

from __future__ import annotations

import io
import os
import re
import sys

_MARGIN = 2
_LINK = r"\[((?:[^\]`]|`[^`]*`)*)\]\([^)]*\)"


def draw_markdown(text: str, width: int, colored: bool | None = None) -> str:
    """The text as lines of at most `width` columns; colored: for a terminal. [default: if stdout is one]"""
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.markdown import Heading, Markdown
    from rich.padding import Padding
    from rich.text import Text

    class Line(Heading):
        """A heading: bold, at the left."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            yield Text(self.text.plain, style="bold")

    class Page(Markdown):
        elements = {**Markdown.elements, "heading_open": Line}  # noqa: RUF012

    if colored is None:
        colored = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colored,
        no_color=not colored,
        highlight=False,
        legacy_windows=False,
    )
    page = Page(_readable(text, width - 2 * _MARGIN), code_theme="ansi_dark", hyperlinks=False)
    console.print(Padding(page, (0, 0, 0, _MARGIN)))
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in drawn.splitlines())).strip("\n")


def _readable(text: str, width: int) -> str:
    """The text without pictures and addresses, and with blocks of code that fit."""
    parts = re.split(r"(^```.*?^```\n?)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(fit_code(one, width) if one.startswith("```") else _without_links(one) for one in parts)


def _without_links(text: str) -> str:
    text = re.sub(rf"^!{_LINK}\n?|!{_LINK}", "", text, flags=re.MULTILINE)
    text = re.sub(rf"\[!{_LINK}\]\([^)]*\)", "", text)
    return re.sub(_LINK, r"\1", text)


def fit_code(block: str, width: int) -> str:
    """A block of code with its comments below their lines, if any line is too long with its comment.

    >>> print(fit_code("q = x @ W      # (2, 3)   project", 21))
    q = x @ W
        # (2, 3)  project
    """
    if any(len(line) > width and "  #" in line for line in block.splitlines()):
        block = re.sub(r"^( *)(\S.*?) {2,}(#.*)$", _below, block, flags=re.MULTILINE)
    return "".join(_broken(line, width) for line in block.splitlines(keepends=True))


def _broken(line: str, width: int) -> str:
    r"""A line of code that is too long, broken at a space and continued further right, after `...` at a prompt.

    >>> _broken(">>> layer(x, mask)", 13), _broken("  # a comment", 9)
    ('>>> layer(x,\n...     mask)', '  # a\n  # comment')
    """
    if len(line.rstrip("\n")) <= width:
        return line
    prompt = re.match(r"(?:>>> |\.\.\. )? *(?:# *)?", line)
    assert prompt is not None  # it matches everything
    at = line.rfind(" ", len(prompt[0]), width + 1)
    if at < 0 or line.startswith("```"):
        return line
    start = prompt[0].replace(">>>", "...") + "    " * ("#" not in prompt[0])
    return f"{line[:at].rstrip()}\n{_broken(start + line[at + 1 :], width)}"


def _below(line: re.Match[str]) -> str:
    indent, code, comment = line.groups()
    return f"{indent}{code}\n{indent}    {re.sub('  +', '  ', comment)}"
