"""`regard page TEXT -o page.html`: what the heads of a model do with a text, as a page or a figure."""

from typing import Annotated

from regard.commands.shared import options
from regard.commands.shared.files import FIGURES, PAGES, announce, check_output, read_contents, write_runs
from regard.commands.shared.options import TINY, check_max_tokens, option, read_head, refuse
from regard.commands.shared.runs import TitledRun, measure_effects, open_texts, watch_text
from regard.commands.shared.texts import model_titles, read_text


def page(
    text: options.Text = None,
    output: Annotated[
        str, option("File to write: a page, .html, or a figure, .svg, .png or .pdf.", "--output", "-o")
    ] = "page.html",
    opens: options.Open = False,
    model: options.Model = TINY,
    head: options.Head = None,
    layer: Annotated[str | None, option("Show a head of this layer, by number or name. [default: all layers]")] = None,
    token: Annotated[
        str | None,
        option("Open the page at this token, in the head where it looks most: sat, or the@4. [default: off]"),
    ] = None,
    steps: options.Steps = None,
    exact: options.Exact = None,
    effect: options.Effect = False,
    ladder: Annotated[
        bool, option("Show the four layers of the ladder instead of a model. [default: off]", "--ladder")
    ] = False,
    live: Annotated[
        bool,
        option("Put the model into the page: type other texts there, cut heads. [default: off]", "--live"),
    ] = False,
    max_tokens: options.MaxTokens = None,
    device: options.Device = "cpu",
) -> None:
    """Write a page of what every head does with a text.

    The page is one file that opens offline. With -o head.svg it is a figure of one head instead, or of one
    token with --token.
    """
    place = read_head(head, layer)
    check_max_tokens(max_tokens)
    check_output(output, (*PAGES, *FIGURES), "a page is FILE.html, a figure .svg, .png or .pdf")
    contents = read_contents(steps, exact)
    about_page: dict[str, object] = {"--steps": steps, "--exact": exact, "--effect": effect}
    is_page = output.lower().endswith(PAGES)
    if token is not None and head is not None:
        raise ValueError(f"--token {token} begins with the head that says most about it; leave out --head {head}")
    if not is_page:
        refuse(
            about_page | {"--open": opens, "--ladder": ladder, "--live": live},
            "that is about a page",
            "write one: -o page.html",
        )
    if ladder:
        of_model: dict[str, object] = {"--live": live, "--model": model != TINY, "--head": head, "--layer": layer}
        of_model |= {"--token": token, "--max-tokens": max_tokens}
        refuse({"a text": text} | of_model | about_page, "--ladder shows its own example", "leave --ladder out")
        from regard.commands.ladder_page import START, ladder_reports
        from regard.show.page.write import write_page

        write_page(output, ladder_reports(), START)
        announce(output, opens)
        return
    if live:
        chosen = {"--head": head, "--layer": layer, "--token": token, "--device": device != "cpu"}
        refuse(chosen | about_page, "a page with --live shows what is typed in it", "leave it out")
        from regard.commands.live_page import write_live_page

        write_live_page(output, model, None if text is None else read_text(text), max_tokens)
        announce(output, opens)
        return
    (opened,) = open_texts([model], [read_text(text)], max_tokens, device, steps and f"--steps {steps}")
    seen = watch_text(opened)
    contents.check(seen)
    from regard.show.page.opening import order_of_heads

    first = order_of_heads(seen, place[0])[0]
    if place[0] is not None and place[1] is not None:
        first = seen[place[0], place[1]].layer, place[1]
    pinned: dict[str, int | str | bool] = {}
    if token is not None:
        looks = seen.at(token, layers=place[0])
        first = looks[0].head.layer, looks[0].head.head
        pinned = {"view": "head", "side": "query", "focus": looks.position, "pinned": True}
    if is_page:
        effects = measure_effects([opened]) if effect else None
        start: dict[str, int | str | bool] = {"layer": first[0], "head": first[1]}
        start |= {"view": "heads", "sort": "effect"} if effect else {}
        start |= pinned
        write_runs(output, [TitledRun(model_titles([model])[0], model, opened, seen)], contents, start, effects)
    else:
        from regard.show.figures import save_figure

        save_figure(seen[first].plot() if token is None else looks.plot(), output)
    announce(output, opens)
