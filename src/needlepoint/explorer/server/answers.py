"""Questions over HTTP: a POST of JSON, answered by a stream of lines of JSON, which ends when either side leaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from needlepoint.core.errors import NeedlepointError, brief
from needlepoint.explorer.limits import Limits
from needlepoint.explorer.questions.asking import WITH_MATRIX, read
from needlepoint.explorer.server.guard import refusal
from needlepoint.explorer.workers.crew import Busy, Crew

STATUS = {"refused": 422, "failed": 500}
"""Status of an answer whose first event is this; later the stream has begun with 200 and says it itself."""


class TooLarge(Exception):
    """A body beyond the limit."""


async def body_of(request: Request, most: int) -> bytes:
    """Return the body of a request, reading no more than `most` bytes."""
    declared = request.headers.get("content-length", "0")
    if not declared.isascii() or not declared.isdigit() or len(declared) > 12 or int(declared) > most:
        raise TooLarge
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise TooLarge
        parts.append(part)
    return b"".join(parts)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def parsed(body: bytes, limits: Limits) -> Any:
    """Return the JSON document of a body; raise ValueError where it is none, too deep, or has NaN or infinity."""
    text = body.decode()
    level = deepest = 0
    for character in text:  # brackets inside texts count too, which refuses no question of the page
        level += (character in "[{") - (character in "]}")
        deepest = max(deepest, level)
    if deepest > limits.depth:
        raise ValueError("nested too deeply")
    return json.loads(text, parse_constant=_no_number)


async def asked(request: Request) -> Any:
    """Return the response to one question: a refusal, or the stream of its answer."""
    crew: Crew = request.app.state.crew
    limits = crew.limits
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return refusal(415, "A question is sent as application/json.")
    try:
        body = await body_of(request, limits.matrix)
        document = parsed(body, limits)
        if len(body) > limits.body and not (isinstance(document, dict) and document.get("kind") in WITH_MATRIX):
            raise TooLarge
        read(document)
    except TooLarge:
        return refusal(413, f"A question has at most {limits.body:,} bytes, one with a matrix {limits.matrix:,}.")
    except NeedlepointError as error:
        return refusal(400, brief(str(error)))
    except (ValueError, RecursionError):
        return refusal(400, "The question is not JSON: numbers are finite, and brackets are not nested deeply.")
    return Stream(crew, document)


class Stream(Response):
    """The answer to a question as lines of JSON. Its status is that of the first event, so that a refusal is a 4xx."""

    def __init__(self, crew: Crew, document: Any):
        self.crew, self.document = crew, document
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until they end or the client leaves; then the work ends too."""
        sending = asyncio.ensure_future(self._send(scope, receive, send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not sending.done():
                sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await sending

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with contextlib.aclosing(self.crew.answer(self.document)) as events:
            held: list[dict[str, Any]] = []
            try:
                async for event in events:
                    held.append(event)
                    if event["event"] != "started":
                        break
            except Busy:
                later = refusal(429, "Too many questions wait; ask again in a moment.", {"retry-after": "1"})
                await later(scope, receive, send)
                return
            first = held[-1]["event"] if held else "failed"
            if first in STATUS:
                await refusal(STATUS[first], str(held[-1].get("sentence", "")))(scope, receive, send)
                return
            await self._stream(held, events, send)

    async def _stream(self, held: list[dict[str, Any]], events: AsyncGenerator[dict[str, Any]], send: Any) -> None:
        headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for event in held:
            await send({"type": "http.response.body", "body": _line(event), "more_body": True})
        async for event in events:
            await send({"type": "http.response.body", "body": _line(event), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _line(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode() + b"\n"


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
