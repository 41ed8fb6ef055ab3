"""Who may ask: the name a request is addressed to, where it comes from, and the token that it carries."""

from __future__ import annotations

import re
import secrets
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from needlepoint.explorer.settings import Settings

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src-elem 'self'",
        "style-src-attr 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
TOKEN = "x-needlepoint-token"
LOCAL = ("127.0.0.1", "localhost", "[::1]")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,253})(?::(\d{1,5}))?", re.ASCII)


def refusal(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return the one form of every refusal: a status and a sentence."""
    return JSONResponse({"sentence": sentence}, status, headers)


class Guard:
    """Refuses requests that are addressed to another name, come from another page, or lack the token; adds the headers
    that keep the page to itself."""

    def __init__(self, app: ASGIApp, settings: Settings):
        self.app, self.token = app, settings.token.encode()
        self.names = {name.lower() for name in (*LOCAL, *settings.hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # there are no web sockets here

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refused = self.refused(scope)
        await (self.app if refused is None else refused)(scope, receive, guarded)

    def refused(self, scope: Scope) -> JSONResponse | None:
        """Return the refusal of a request, or None where it is welcome."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        found = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if found is None or found[1].lower() not in self.names:
            return refusal(403, "This address is not one of the explorer's; --allow-host adds a name.")
        origins = headers.getlist("origin")
        own = {f"http://{hosts[0].lower()}", f"https://{hosts[0].lower()}"}
        if any(origin.lower() not in own for origin in origins):
            return refusal(403, "This request comes from another page, which may not ask here.")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return refusal(403, "This request comes from another page, which may not ask here.")
        if scope["path"].startswith("/ask") and not self.knows(headers):
            return refusal(401, "This needs the whole address that `needlepoint explore` has printed, with its token.")
        return None

    def knows(self, headers: Headers) -> bool:
        given: Any = headers.get(TOKEN, "").encode("utf-8", "replace")
        return secrets.compare_digest(given, self.token)
