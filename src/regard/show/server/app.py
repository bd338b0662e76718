"""The server's answers: the page with its text box, the report of a text, and the blocks of a report.

Reports are kept: the last used, up to so many bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from regard.show.page.html import served_html
from regard.show.page.payload import PageData
from regard.show.server.guard import Guard, known_hosts
from regard.show.server.limits import Busy, Limits, SharedRuns, TooLarge, Turns, check_cut, check_text, read_question

# Model and text, and where it cuts also the head to cut, to what the page shows; a ValueError is the person's mistake.
See = Callable[..., PageData]
_log = logging.getLogger(__name__)


def create_app(
    see: See,
    models: Sequence[str],
    example: str,
    *,
    cuts: bool = False,
    live: Mapping[str, Callable[[], str]] | None = None,
    host: str = "127.0.0.1",
    limits: Limits | None = None,
) -> Starlette:
    """The server as an ASGI application.

    see: runs a model on a text, in a thread.
    models: the names that see knows; the first is the default.
    example: the text that the page begins with.
    cuts: see also takes a head, (layer, head), and shows the text without it beside the text with it.
    live: for the models that a page can run itself, what writes that page; it is a download.
    host: what the server listens on; it answers to no other name.
    """
    limits = limits or Limits()
    kept, turns = KeptReports(limits.kept_bytes), Turns(limits)
    runs = SharedRuns(turns, kept.add)
    settings: dict[str, object] = {"models": list(models), "text": example, "longest": limits.characters}
    settings |= ({"cuts": True} if cuts else {}) | ({"live": list(live)} if live else {})
    page = served_html(settings).encode()

    async def start(_: Request) -> Response:
        return HTMLResponse(page)

    async def report(request: Request) -> Response:
        """The report of a text and its id, from those that are kept or by running the model."""
        question = await read_question(request, limits)
        text = check_text(question.get("text"), limits)
        model = question.get("model", models[0])
        if model not in models:
            raise HTTPException(400, f"there is no such model here; choose {' or '.join(models)}")
        cut = check_cut(question.get("cut"))
        if cut is not None and not cuts:
            raise HTTPException(400, "this server cuts no heads; leave cut out")
        id = kept.id(model, text, cut)
        if (known := kept.get(id)) is None:
            known = await run(request, id, (model, text) if cut is None else (model, text, cut))
        return Response(b'{"id":"%s","document":%s}' % (id.encode(), known.document), media_type="application/json")

    async def run(request: Request, id: str, question: tuple[Any, ...]) -> KeptReport:
        try:
            return await runs.result(id, request, lambda: KeptReport.of(see(*question)))
        except ValueError as error:
            message = (str(error).splitlines() or ["the model cannot read this text"])[0]
            raise HTTPException(413 if isinstance(error, TooLarge) else 400, message) from None
        except Busy as busy:
            message = f"the model has {busy.ahead} other texts to read first; try again in {busy.seconds} s"
            raise HTTPException(503, message, headers={"Retry-After": str(busy.seconds)}) from None

    async def block(request: Request) -> Response:
        """A block of a report: gzip."""
        known = kept.get(request.path_params["id"])
        if known is None:
            raise HTTPException(404, "this report is no longer kept; send its text again")
        content = known.blocks.get(request.path_params["key"])
        if content is None:
            raise HTTPException(404, "this block is not in the report")
        return Response(content, media_type="application/gzip")

    routes = [Route("/", start), Route("/live.html", LivePages(live or {}).answer)]
    routes += [Route("/api/see", report, methods=["POST"]), Route("/api/block/{id}/{key}", block)]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, known=known_hosts(host))],
        exception_handlers={HTTPException: _refused, Exception: _failed},
    )
    app.state.turns, app.state.kept = turns, kept
    return app


class LivePages:
    """The pages that run a model without a server, each written when it is first asked for."""

    def __init__(self, writers: Mapping[str, Callable[[], str]]) -> None:
        self._writers = writers
        self._written: dict[str, bytes] = {}
        self._writing = asyncio.Lock()  # one at a time

    async def answer(self, request: Request) -> Response:
        """A page as a file."""
        name = request.query_params.get("model", "")
        if name not in self._writers:
            raise HTTPException(404, "there is no page of this model to download")
        async with self._writing:
            if name not in self._written:
                self._written[name] = (await run_in_threadpool(self._writers[name])).encode()
        file = {"Content-Disposition": 'attachment; filename="live.html"'}
        return Response(self._written[name], media_type="text/html", headers=file)


async def _refused(_: Request, error: Any) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _failed(_: Request, error: Exception) -> Response:
    _log.error("a request failed", exc_info=error)
    return JSONResponse({"error": "the server failed on this request; its terminal says why"}, 500)


@dataclass(frozen=True)
class KeptReport:
    """The document of a page as JSON, and its blocks."""

    document: bytes
    blocks: Mapping[str, bytes]  # gzip

    @staticmethod
    def of(data: PageData) -> KeptReport:
        text = json.dumps(data.document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return KeptReport(text.encode(), data.blocks)

    @property
    def size(self) -> int:
        return len(self.document) + sum(map(len, self.blocks.values()))


class KeptReports:
    """Reports by id, the least recently used removed first. The newest is always kept."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = 0
        self._reports: OrderedDict[str, KeptReport] = OrderedDict()
        self._secret = secrets.token_bytes(32)  # so that nobody can guess the id of another person's text

    def __len__(self) -> int:
        return len(self._reports)

    def id(self, model: str, text: str, cut: tuple[int, int] | None = None) -> str:
        """The id of a text with a model, and a head cut in it: the same as long as the server runs."""
        named = json.dumps([model, text, cut]).encode()
        return hashlib.blake2b(named, key=self._secret, digest_size=16).hexdigest()

    def get(self, id: str) -> KeptReport | None:
        """The report, which is then the last used."""
        report = self._reports.get(id)
        if report is not None:
            self._reports.move_to_end(id)
        return report

    def add(self, id: str, report: KeptReport) -> None:
        """Keep a report, and remove the oldest that no longer fit."""
        old = self._reports.pop(id, None)
        self.size += report.size - (old.size if old else 0)
        self._reports[id] = report
        while self.size > self.most and len(self._reports) > 1:
            self.size -= self._reports.popitem(last=False)[1].size
