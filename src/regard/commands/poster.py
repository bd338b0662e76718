"""`regard poster TEXT -o poster.pdf`: every head of a model on one sheet to print."""

from pathlib import Path
from typing import Annotated

from regard.commands.shared import options
from regard.commands.shared.files import FIGURES, announce, check_output
from regard.commands.shared.options import TINY, check_max_tokens, option
from regard.commands.shared.runs import open_texts, watch_text
from regard.commands.shared.texts import read_text


def poster(
    text: options.Text = None,
    output: Annotated[str, option("File to write: .pdf, .svg or .png.", "--output", "-o")] = "poster.pdf",
    model: options.Model = TINY,
    title: Annotated[str | None, option("Title of the poster. [default: the name of the model]")] = None,
    paper: Annotated[str, option("Size of the sheet: a4, a3, a2 or a1.")] = "a3",
    max_tokens: options.MaxTokens = None,
    device: options.Device = "cpu",
) -> None:
    """Write a poster of what every head of a model does with a text.

    Colours mark the heads with a clear role. Needs matplotlib.
    """
    check_max_tokens(max_tokens)
    check_output(output, FIGURES, "a poster is .pdf, .svg or .png")
    from regard.show.figures import save_figure
    from regard.show.figures.poster import PAPERS, draw_poster

    if paper not in PAPERS:
        raise ValueError(f"--paper {paper} is not known; it is one of {', '.join(PAPERS)}")
    (opened,) = open_texts([model], [read_text(text)], max_tokens, device)
    seen = watch_text(opened)
    save_figure(draw_poster(seen, title=Path(model).name if title is None else title, paper=paper), output)
    announce(output, False)
