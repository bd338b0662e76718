"""`regard play TEXT --head 4.3 -o head.svg`: a head reads a text word by word, as an animation."""

from pathlib import Path
from typing import Annotated

from regard.commands.shared import options
from regard.commands.shared.files import announce, check_output
from regard.commands.shared.options import TINY, check_max_tokens, option, read_head
from regard.commands.shared.runs import open_texts, watch_text
from regard.commands.shared.texts import read_text


def play(
    text: options.Text = None,
    output: Annotated[str, option("File to write: .svg.", "--output", "-o")] = "head.svg",
    model: options.Model = TINY,
    head: options.Head = None,
    seconds: Annotated[float, option("Seconds per word.")] = 0.35,
    max_tokens: options.MaxTokens = None,
    device: options.Device = "cpu",
) -> None:
    """Write an animation of a head that reads a text word by word.

    The file opens in any browser, and stands still where the system is set to reduce motion.
    """
    place = read_head(head, None)
    check_max_tokens(max_tokens)
    check_output(output, (".svg",), "an animation is .svg", is_drawn=False)
    (opened,) = open_texts([model], [read_text(text)], max_tokens, device)
    seen = watch_text(opened)
    first = seen.order()[0] if place[0] is None or place[1] is None else (seen[place[0], place[1]].layer, place[1])
    from regard.show.figures.animation import animated_svg
    from regard.support.files import atomically

    moving = animated_svg(seen[first], title=Path(model).name, seconds=seconds)
    with atomically(output) as temporary:
        temporary.write_text(moving, encoding="utf-8")
    announce(output, False)
