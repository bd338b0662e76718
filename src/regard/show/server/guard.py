"""Who may talk to the server: requests that name it by an address of its own, from its own page.

A page of another site can make a browser send requests to a local server. It cannot name the server's address as the
Host while it comes under a name of its own (DNS rebinding), and browsers say where a request comes from.
"""

import ipaddress
import re
import socket
from collections.abc import Callable
from typing import Any

from starlette.responses import JSONResponse

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::\d{1,5})?", re.ASCII)
_HEADERS = [
    (b"content-security-policy", b"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


def known_hosts(host: str) -> Callable[[str], bool]:
    """Which names a server on this host answers to.

    On loopback those of loopback; elsewhere also addresses, which no name can be made to point at, and its own names.

    >>> known = known_hosts("127.0.0.1")
    >>> [known(name) for name in ("localhost", "127.0.0.1", "10.0.0.7", "evil.example")]
    [True, True, False, False]
    >>> known = known_hosts("0.0.0.0")
    >>> [known(name) for name in ("localhost", "10.0.0.7", "evil.example")]
    [True, True, False]
    """
    if is_loopback(host):
        return lambda name: name in LOOPBACK or name == host
    names = LOOPBACK | {host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
    return lambda name: name in names or _is_address(name)


def is_loopback(host: str) -> bool:
    """Can only this computer reach it?"""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """Refuses requests under other names and from other sites, and adds headers to every answer."""

    def __init__(self, app: Any, known: Callable[[str], bool]) -> None:
        self.app, self.known = app, known

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = message | {"headers": [*message["headers"], *_HEADERS]}
            await send(message)

        await (self._refusal(scope) or self.app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Any) -> JSONResponse | None:
        names = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"]
        match = _HOST.fullmatch(names[0]) if len(names) == 1 else None
        if match is None or not self.known(match[1] or match[2].rstrip(".")):
            error = "this server does not answer to that Host; open the address that it printed"
            return JSONResponse({"error": error}, 421)
        sites = [value for name, value in scope["headers"] if name == b"sec-fetch-site"]
        origins = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"origin"]
        foreign = any(site not in (b"same-origin", b"none") for site in sites)
        foreign = foreign or any(origin.partition("://")[2] != names[0] for origin in origins)
        if scope["path"].startswith("/api/") and foreign:
            return JSONResponse({"error": "requests of other sites are not answered"}, 403)
        return None
