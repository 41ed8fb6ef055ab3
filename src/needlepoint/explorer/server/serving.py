"""Opening the address: a socket on this machine only, the server on it, and the browser in front of it."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import threading
import webbrowser
from collections.abc import Mapping
from urllib.parse import urlencode

from needlepoint.core.errors import InvalidParameter
from needlepoint.explorer.settings import Settings


def listening(port: int) -> socket.socket:
    """Return a socket that listens on 127.0.0.1 at a port; 0 takes one that is free."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
    except OSError as error:
        found.close()
        why = "another program has it" if error.errno == errno.EADDRINUSE else str(error.strerror or error).lower()
        raise InvalidParameter(f"explore: port {port} cannot be used ({why}); --port 0 takes a free one.") from None
    return found


def address(port: int, token: str, initial: Mapping[str, str] | None = None) -> str:
    """Return the page's address; the token is in the fragment, which a browser sends to nobody."""
    query = f"?{urlencode(initial)}" if initial else ""
    return f"http://127.0.0.1:{port}/{query}#token={token}"


def serve(settings: Settings, *, port: int = 0, browser: bool = True, initial: Mapping[str, str] | None = None) -> None:
    """Serve the page until interrupted, and print its address, which opens it at the state `initial`."""
    try:
        import uvicorn

        from needlepoint.explorer.server.app import application
    except ImportError as error:
        raise missing(error) from None
    with contextlib.closing(listening(port)) as listener:
        found = address(listener.getsockname()[1], settings.token, initial)
        config = uvicorn.Config(
            application(settings),
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            limit_concurrency=1000,
        )
        server = uvicorn.Server(config)
        print(found, flush=True)
        print("needlepoint: the page is there until Ctrl-C; whoever has the address can ask.", file=sys.stderr)
        if browser:
            threading.Thread(target=webbrowser.open, args=(found,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


def missing(error: ImportError) -> InvalidParameter:
    """Return the sentence for a machine without the extra."""
    return InvalidParameter(f"explore needs {error.name or 'more'}: pip install 'needlepoint[explorer]'.")
