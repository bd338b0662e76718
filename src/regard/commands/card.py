"""`regard card`: the reference card in the terminal, or as a file to print."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

from regard.commands.shared.files import announce, check_output
from regard.commands.shared.options import Open, option
from regard.show.terminal.table import terminal_width
from regard.support.printable import styled

_KINDS = {".pdf": "card/card.pdf", ".svg": "card/flow.svg", ".md": "card.md"}


def card(
    output: Annotated[
        str | None,
        option(
            "File to write: .pdf (one page of A4), .svg (the drawing) or .md. [default: print it]", "--output", "-o"
        ),
    ] = None,
    opens: Open = False,
) -> None:
    """Print the reference card, or save it."""
    from regard.commands.shared.pages import FOLDER, pages
    from regard.show.terminal.markdown import draw_markdown

    if output is None:
        if opens:
            raise ValueError("--open opens a file; name it: regard card -o card.pdf --open")
        print(f"\n{draw_markdown(_for_terminal(pages()['card']), terminal_width())}\n", file=styled(sys.stdout))
        print("  To print: regard card -o card.pdf   Questions: regard docs questions\n")
        return
    check_output(output, tuple(_KINDS), "the card is a .pdf, .svg or .md", is_drawn=False)
    if Path(output).exists():
        raise ValueError(f"{output} exists already; remove it or choose another name")
    shutil.copyfile(FOLDER / _KINDS[Path(output).suffix.lower()], output)
    announce(output, opens)


def _for_terminal(text: str) -> str:
    """Without the lines that point to other files."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(("To print:", "Why each of it:")))
