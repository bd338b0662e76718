"""`regard page TEXT -o page.html`: what the heads of a model do with a text, as a page or a figure."""

from typing import Annotated

from regard.commands.shared import options
from regard.commands.shared.files import FIGURES, PAGES, announce, check_output, read_contents, write_runs
from regard.commands.shared.options import TINY, check_max_tokens, option, read_head, refuse
from regard.commands.shared.runs import TitledRun, measure_effects, open_texts, watch_text
from regard.commands.shared.texts import read_text


def page(
    text: options.Text = None,
    output: Annotated[
        str, option("File to write: a page, .html, or a figure, .svg, .png or .pdf.", "--output", "-o")
    ] = "page.html",
    opens: options.Open = False,
    model: options.Model = TINY,
    head: options.Head = None,
    layer: Annotated[str | None, option("Show a head of this layer, by number or name. [default: all layers]")] = None,
    steps: options.Steps = None,
    exact: options.Exact = None,
    effect: options.Effect = False,
    ladder: Annotated[
        bool, option("The four layers of the ladder in place of a model. [default: off]", "--ladder")
    ] = False,
    max_tokens: options.MaxTokens = None,
    device: options.Device = "cpu",
) -> None:
    """Write a page of what every head does with a text.

    It is one file that opens offline. With -o head.svg, a figure of one head.
    """
    place = read_head(head, layer)
    check_max_tokens(max_tokens)
    check_output(output, (*PAGES, *FIGURES), "a page is FILE.html, a figure .svg, .png or .pdf")
    contents = read_contents(steps, exact)
    about_page: dict[str, object] = {"--steps": steps, "--exact": exact, "--effect": effect}
    is_page = output.lower().endswith(PAGES)
    if not is_page:
        refuse(about_page | {"--open": opens, "--ladder": ladder}, "that is about a page", "write one: -o page.html")
    if ladder:
        of_model = {"--model": model != TINY, "--head": head, "--layer": layer, "--max-tokens": max_tokens}
        refuse({"a text": text} | of_model | about_page, "--ladder shows its own example", "leave --ladder out")
        from regard.commands.ladder_page import ladder_reports
        from regard.show.page.write import write_page

        write_page(output, ladder_reports())
        announce(output, opens)
        return
    (opened,) = open_texts([model], [read_text(text)], max_tokens, device, steps and f"--steps {steps}")
    seen = watch_text(opened)
    contents.check(seen)
    first = seen.order(place[0])[0]
    if place[0] is not None and place[1] is not None:
        first = seen[place[0], place[1]].layer, place[1]
    if is_page:
        effects = measure_effects([opened]) if effect else None
        start: dict[str, int | str] = {"layer": first[0], "head": first[1]}
        start |= {"view": "heads", "sort": "effect"} if effect else {}
        write_runs(output, [TitledRun(model, model, opened, seen)], contents, start, effects)
    else:
        from regard.show.figures import save_figure

        save_figure(seen[first].plot(), output)
    announce(output, opens)
