"""`regard serve`: type a text in the browser and see what the heads of a model do with it, on a local server."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

from regard.commands.shared import options
from regard.commands.shared.options import HUB, TINY, check_max_tokens, check_model, option
from regard.support.extras import how_to_install

if TYPE_CHECKING:
    from regard.commands.shared.models import Reader
    from regard.show.page.payload import PageData


def serve(
    model: Annotated[list[str] | None, option(f"{HUB}. May be repeated. [default: tiny, in the package]")] = None,
    port: Annotated[int, option("Port. 0 takes a free one.")] = 8765,
    host: Annotated[
        str, option("Address to listen on. Any other than 127.0.0.1 lets other computers connect.")
    ] = "127.0.0.1",
    opens: options.Open = False,
    max_tokens: Annotated[int, option("Refuse texts with more tokens.")] = 512,
    device: options.Device = "cpu",
) -> Any:
    """Show what every head does with your own texts, in the browser."""
    names = list(dict.fromkeys(map(check_model, model or [TINY])))
    if not 0 <= port <= 65535:
        raise ValueError(f"--port {port} must be between 0 and 65535; 0 takes a free one")
    check_max_tokens(max_tokens)
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise ValueError(f"regard serve needs {' and '.join(missing)}; {how_to_install('serve')}")
    from regard.commands.shared.models import load_reader
    from regard.commands.shared.texts import REPEATED
    from regard.commands.terminal.interrupt import leave
    from regard.show.server.app import create_app
    from regard.show.server.guard import is_loopback
    from regard.show.server.limits import Limits
    from regard.show.server.listen import address, open_socket, run_server

    limits = Limits()
    with open_socket(host, port) as listening:  # before the models are loaded: a port in use is said at once
        readers = {name: load_reader(name, device) for name in names}

        def answer(name: str, text: str, cut: tuple[int, int] | None = None) -> PageData:
            return page_of(name, readers[name], text, max_tokens, cut)

        live = {name: partial(live_html_of, name, reader, max_tokens) for name, reader in readers.items()}
        offered = {name: write for name, write in live.items() if runs_in_a_page(readers[name])}
        app = create_app(answer, names, REPEATED, cuts=True, live=offered, host=host, limits=limits)
        print(f"\n  {' · '.join(names)}\n  {address(listening)}")
        if not is_loopback(host):
            print(f"  Every computer that can reach {host} can use it; there is no password.")
        print("  Ctrl-C ends it.", flush=True)
        if opens:
            import webbrowser

            webbrowser.open(address(listening))
        try:
            run_server(app, listening, limits)
        finally:
            if app.state.turns.running:  # torch computes in a thread, which only the end of the process stops
                leave()


def runs_in_a_page(reader: Reader) -> bool:
    """Can a page run this model itself? Then it is offered as a download."""
    from regard.gpt.model import GPT
    from regard.gpt.tokenizer.portable import portable_tokenizer
    from regard.show.page.live import check_size

    model = reader("a", None).model
    if not isinstance(model, GPT) or model.tokenizer is None:
        return False
    try:
        check_size(model, "")
        portable_tokenizer(model.tokenizer)
    except ValueError:
        return False
    return True


def live_html_of(name: str, reader: Reader, max_tokens: int) -> str:
    """The page that runs a model, of those that can."""
    from regard.commands.shared.texts import model_titles
    from regard.gpt.model import GPT
    from regard.show.page.live import live_page

    model = reader("a", None).model
    assert isinstance(model, GPT)
    return live_page(model, model_titles([name])[0], longest=max_tokens).html()


# What the page says of a layer without steps.
_ALL_STEPS = "The steps of layer {layer} are not here. A page in a file can have them: regard page --steps {layer}"
_NO_STEPS = "There are no steps to follow: heads are cut, or the code of this model names none."


def page_of(name: str, reader: Reader, text: str, max_tokens: int, cut: tuple[int, int] | None = None) -> PageData:
    """Run a model on a text, and return what the page shows of it; beside the text without a head, where one is cut."""
    from regard.commands.shared.models import TextTooLong
    from regard.commands.shared.runs import watch_text
    from regard.commands.shared.texts import model_titles
    from regard.gpt.model import GPT
    from regard.heads.change.cut import cut as switch_off
    from regard.show.page.opening import order_of_heads
    from regard.show.page.payload import page_data
    from regard.show.page.write import titled_texts
    from regard.show.server.limits import TooLarge
    from regard.traces.trace import trace_layers

    try:
        opened = reader(text, None)
        if opened.tokens > max_tokens:
            raise TextTooLong(opened.tokens, max_tokens)
    except TextTooLong as error:
        longest = min(error.longest, max_tokens)
        raise TooLarge(f"the text has {error.tokens} tokens; at most {longest} are read here. Shorten it.") from None
    seen = watch_text(opened, progress=False)
    layers = [order_of_heads(seen)[0][0]] if isinstance(opened.model, GPT) else []
    title, steps = (
        model_titles([name])[0] if cut is None else "uncut",
        trace_layers(opened.model, opened.inputs, layers),
    )
    reports = titled_texts(seen, title, steps, without_steps=_ALL_STEPS if layers else _NO_STEPS)
    if cut is None:
        return page_data(reports, thumbnails=True)
    _ = seen[cut]  # refuses a head that does not exist
    with switch_off(opened.model, cut):
        without = watch_text(opened, progress=False)
    change = seen.compare(without)[0]
    page = page_data(
        [*reports, *titled_texts(without, f"without {cut[0]}.{cut[1]}", without_steps=_NO_STEPS)], thumbnails=True
    )
    page.document["start"] = {"view": "compare", "layer": change.layer, "head": change.head}
    return page
