"""One file: the page with its data, its styles and its script. It holds no outside address and opens offline."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib import resources

from regard.show.page.payload import PageData

# In this order each module comes after those it imports.
MODULES = (
    *("dom", "color", "data", "state", "words", "map", "lines", "ask", "text", "pictures", "scale", "side", "head"),
    *("heads", "exact", "mass", "zoom", "long", "changes", "dumbbell", "compare"),
    *("export", "legend", "frame", "app"),
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src '{script_hash}'; style-src 'unsafe-inline'; img-src data: blob:">
<title>{title}</title>
<style>{style}</style>
</head>
<body class="regard-page">
<div id="regard"></div>
<script type="application/json" id="regard-document">{document}</script>
{blocks}
<script>{script}</script>
</body>
</html>
"""


def page_html(data: PageData) -> str:
    """The page as one HTML document."""
    title = " and ".join(dict.fromkeys(report["title"] for report in data.document["reports"]))
    start = script("startPage();")
    digest = base64.b64encode(hashlib.sha256(start.encode()).digest()).decode()
    blocks = "\n".join(
        f'<script type="text/plain" id="block-{key}">{base64.b64encode(content).decode()}</script>'
        for key, content in data.blocks.items()
    )
    return _PAGE.format(
        script_hash=f"sha256-{digest}",
        title=_escaped(f"{title} · regard" if title else "regard"),
        style=read("page.css"),
        document=json_in_html(data.document),
        blocks=blocks,
        script=start,
    )


def script(last: str) -> str:
    """All modules as one script, with this last statement: imports and exports between them are taken out."""
    return f"(() => {{\n{joined()}\n{last}\n}})();"


@cache
def joined() -> str:
    """The modules in one scope."""
    lines = []
    for name in MODULES:
        inside = False
        for line in read(f"js/{name}.js").splitlines():
            inside = inside or line.startswith("import ")
            if inside:
                inside = not line.rstrip().endswith(";")
            else:
                lines.append(line.removeprefix("export "))
    return "\n".join(lines)


@cache
def read(name: str) -> str:
    """A file of the page."""
    return resources.files("regard.show.page").joinpath(name).read_text(encoding="utf-8")


def json_in_html(document: object) -> str:
    """JSON that cannot end its script element, whatever a token holds."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
