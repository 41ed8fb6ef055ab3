"""The application: the page's own files, which anyone on this machine may read, and questions, which need the token."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import mimetypes
from collections.abc import AsyncGenerator
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from needlepoint.explorer.server.answers import asked
from needlepoint.explorer.server.guard import Guard, refusal
from needlepoint.explorer.settings import Settings
from needlepoint.explorer.workers.crew import Crew

PAGE = Path(__file__).parent.parent / "page"
_TYPES = {".js": "text/javascript", ".woff2": "font/woff2", ".svg": "image/svg+xml", ".bin": "application/octet-stream"}


class Files:
    """Every file of the page by its address, found once: an address that is not in the table is nowhere.

    Addresses carry a digest of the page, so that a browser may keep files until the package changes.
    """

    def __init__(self, folder: Path = PAGE):
        paths = {p.relative_to(folder).as_posix(): p for p in sorted(folder.rglob("*")) if p.is_file()}
        stamp = "".join(f"{name}{p.stat().st_size}{p.stat().st_mtime_ns}" for name, p in paths.items())
        self.root = f"/files/{hashlib.sha256(stamp.encode()).hexdigest()[:12]}"
        self.paths = {f"{self.root}/{name}": p for name, p in paths.items() if name != "index.html"}
        self.index = (folder / "index.html").read_text(encoding="utf-8").replace("{{root}}", self.root)

    async def page(self, request: Request) -> Response:
        warm = getattr(request.app.state, "warm", None)
        if warm is not None:
            warm()
        return Response(self.index, media_type="text/html", headers={"cache-control": "no-store"})

    async def file(self, request: Request) -> Response:
        path = self.paths.get(request.url.path)
        if path is None:
            return refusal(404, "There is no such file; the page is at /.")
        kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "text/plain"
        return Response(path.read_bytes(), media_type=kind, headers={"cache-control": "private, max-age=86400"})


def application(settings: Settings) -> Starlette:
    """Return the ASGI application of one explorer; its workers start after the page was sent, and end with it."""
    files = Files()

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        app.state.crew = crew = Crew(settings)
        loop, later = asyncio.get_running_loop(), []

        def warm() -> None:
            later.append(loop.call_later(settings.limits.settle, crew.stand_by))

        app.state.warm = warm
        try:
            yield
        finally:
            for timer in later:
                timer.cancel()
            await crew.close()

    async def sentence(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        words = {404: "There is nothing here; the page is at /.", 405: "This address does not take that method."}
        return refusal(status, words.get(status, "The request could not be understood."))

    async def defect(request: Request, error: Exception) -> Response:
        return refusal(500, f"This is a defect of needlepoint ({type(error).__name__}).")

    return Starlette(
        routes=[
            Route("/", files.page),
            Route("/ask", asked, methods=["POST"]),
            Route("/files/{path:path}", files.file),
        ],
        middleware=[Middleware(Guard, settings=settings)],
        exception_handlers={HTTPException: sentence, Exception: defect},
        lifespan=lifespan,
    )
