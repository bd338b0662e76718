"""One file: the page with its data, its styles and its script. It holds no outside address and opens offline.

The script is in the file as base64 of gzip, half its size; a few lines unpack and start it. The page's security policy
names the hashes of both, so that nothing else can run.
"""

import base64
import gzip
import hashlib
import html
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

from regard.show.page.payload import PageData

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body class="regard-page">
<div id="regard">{first}</div>
<script type="application/json" id="regard-document">{document}</script>
{blocks}
<script type="text/plain" id="regard-script">{packed}</script>
<script>{start}</script>
</body>
</html>
"""

_POLICY = "default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"
_UNPACK = """const unpack = async (base64) => {
  const bytes = Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
  return new Response(new Response(bytes).body.pipeThrough(new DecompressionStream("gzip"))).text();
};
"""
_START = (
    _UNPACK
    + """unpack(document.getElementById("regard-script").textContent).then(
  (text) => document.body.append(Object.assign(document.createElement("script"), { text })),
  (error) => document.getElementById("regard").append(`This browser cannot open the page: ${error.message}`),
);
"""
)


# Of a large file: what is there until its script runs, and stays where it never does.
_LOADING = "<p>The page is loading. If this stays, the file is incomplete, or the browser runs no scripts.</p>"


def page_html(data: PageData) -> str:
    """The page as one HTML document."""
    title = " and ".join(dict.fromkeys(report["title"] for report in data.document["reports"]))
    return _filled(f"{title} · regard" if title else "regard", data.document, "regardPage.startPage();", data.blocks)


def served_html(settings: dict[str, object]) -> str:
    """The page as a local server sends it: with a box for a text, and reports fetched from the same server."""
    return _filled("regard", settings, "regardPage.startServed();", policy="; connect-src 'self'")


def live_html(title: str, document: object, blocks: Mapping[str, bytes]) -> str:
    """A page that runs a model: its worker and WebAssembly are made of its own blocks."""
    last, policy = "regardPage.startLive();", "; worker-src blob:"
    allowed, style = " 'wasm-unsafe-eval'", read_asset("live.css")
    return _filled(title, document, last, blocks, policy, allowed, style, _LOADING)


def atlas_html(title: str, document: object, blocks: Mapping[str, bytes]) -> str:
    """A page of an atlas, with a script of its own."""
    style = read_asset("atlas.css")
    return _filled(title, document, "regardAtlas.startAtlas();", blocks, style=style, first=_LOADING, built="atlas.js")


def training_html(title: str, document: object, blocks: Mapping[str, bytes]) -> str:
    """A page that plays a training run, with the script of atlases."""
    style = read_asset("atlas.css")
    return _filled(title, document, "regardAtlas.startRun();", blocks, style=style, first=_LOADING, built="atlas.js")


def _filled(
    title: str,
    document: object,
    last: str,
    blocks: Mapping[str, bytes] = MappingProxyType({}),
    policy: str = "",
    allowed: str = "",
    style: str = "",
    first: str = "",
    built: str = "page.js",
) -> str:
    text = script(last, built)
    return _PAGE.format(
        policy=_POLICY.format(hashes=f"'{_hash(_START)}' '{_hash(text)}'{allowed}") + policy,
        title=html.escape(title, quote=False),
        style=read_asset("page.css") + style,
        document=json_in_html(document),
        blocks="\n".join(
            f'<script type="text/plain" id="block-{key}">{base64.b64encode(content).decode()}</script>'
            for key, content in blocks.items()
        ),
        first=first,
        packed=packed(text),
        start=_START,
    )


def script(last: str, built: str = "page.js") -> str:
    """All modules of js/, joined and made small by `make page`, and a last statement that may use `regardPage`."""
    return f"{read_asset(built).rstrip()}\n{last}"


@cache
def packed(text: str) -> str:
    """The text as base64 of gzip, which `unpack` of the page reads."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _hash(text: str) -> str:
    """As a Content-Security-Policy names a script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def read_asset(name: str) -> str:
    """A file of the page."""
    return resources.files("regard.show.page").joinpath(name).read_text(encoding="utf-8")


def json_in_html(document: object) -> str:
    """JSON that cannot end its script element, whatever a token holds."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
