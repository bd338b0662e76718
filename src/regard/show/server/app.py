"""The server's answers: the page with its text box, the report of a text, and the blocks of a report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from regard.show.page.html import served_html
from regard.show.page.payload import PageData
from regard.show.server.guard import Guard, known_hosts
from regard.show.server.kept import KeptReport, KeptReports
from regard.show.server.limits import Limits, TooLarge, check_cut, check_text, read_question
from regard.show.server.turns import Busy, Turns, in_thread

# Model and text, and where it cuts also the head to cut, to what the page shows; a ValueError is the person's mistake.
See = Callable[..., PageData]
_log = logging.getLogger(__name__)


def create_app(
    see: See,
    models: Sequence[str],
    example: str,
    *,
    cuts: bool = False,
    host: str = "127.0.0.1",
    limits: Limits | None = None,
) -> Starlette:
    """The server as an ASGI application.

    see: runs a model on a text, in a thread.
    models: the names that see knows; the first is the default.
    example: the text that the page begins with.
    cuts: see also takes a head, (layer, head), and shows the text without it beside the text with it.
    host: what the server listens on; it answers to no other name.
    """
    limits = limits or Limits()
    answers = _Answers(see, tuple(models), cuts, limits)
    settings = {"models": list(models), "text": example, "longest": limits.characters} | (
        {"cuts": True} if cuts else {}
    )
    page = served_html(settings).encode()

    async def start(_: Request) -> Response:
        return HTMLResponse(page)

    app = Starlette(
        routes=[
            Route("/", start),
            Route("/api/see", answers.report, methods=["POST"]),
            Route("/api/block/{id}/{key}", answers.block),
        ],
        middleware=[Middleware(Guard, known=known_hosts(host))],
        exception_handlers={HTTPException: _refused, Exception: _failed},
    )
    app.state.turns, app.state.kept = answers.turns, answers.kept
    return app


class _Answers:
    def __init__(self, see: See, models: tuple[str, ...], cuts: bool, limits: Limits) -> None:
        self.see = see
        self.cuts = cuts
        self.models = models
        self.limits = limits
        self.kept = KeptReports(limits.kept_bytes)
        self.turns = Turns(limits)

    async def report(self, request: Request) -> Response:
        """The report of a text and its id, from those that are kept or by running the model."""
        question = await read_question(request, self.limits)
        text = check_text(question.get("text"), self.limits)
        model = question.get("model", self.models[0])
        if model not in self.models:
            raise HTTPException(400, f"there is no such model here; choose {' or '.join(self.models)}")
        cut = check_cut(question.get("cut"))
        if cut is not None and not self.cuts:
            raise HTTPException(400, "this server cuts no heads; leave cut out")
        id = self.kept.id(model, text, cut)
        kept = self.kept.get(id)
        if kept is None:
            try:
                async with self.turns.turn():
                    kept = await self._run(request, id, (model, text) if cut is None else (model, text, cut))
            except Busy:
                message = "too many texts are waiting for the model; try again in a moment"
                raise HTTPException(503, message, headers={"Retry-After": "5"}) from None
        return Response(b'{"id":"%s","document":%s}' % (id.encode(), kept.document), media_type="application/json")

    async def _run(self, request: Request, id: str, question: tuple[Any, ...]) -> KeptReport:
        kept = self.kept.get(id)  # somebody else may have asked the same while this one waited
        if kept is not None:
            return kept
        if await request.is_disconnected():
            raise HTTPException(400, "the connection was closed before the model ran")
        try:
            kept = await in_thread(lambda: KeptReport.of(self.see(*question)))
        except ValueError as error:
            message = (str(error).splitlines() or ["the model cannot read this text"])[0]
            raise HTTPException(413 if isinstance(error, TooLarge) else 400, message) from None
        self.kept.add(id, kept)
        return kept

    async def block(self, request: Request) -> Response:
        """A block of a report: gzip."""
        kept = self.kept.get(request.path_params["id"])
        if kept is None:
            raise HTTPException(404, "this report is no longer kept; send its text again")
        block = kept.blocks.get(request.path_params["key"])
        if block is None:
            raise HTTPException(404, "this block is not in the report")
        return Response(block, media_type="application/gzip")


async def _refused(_: Request, error: Any) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _failed(_: Request, error: Exception) -> Response:
    _log.error("a request failed", exc_info=error)
    return JSONResponse({"error": "the server failed on this request; its terminal says why"}, 500)
