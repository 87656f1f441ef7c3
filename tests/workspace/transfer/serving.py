"""A static file server on loopback that keeps a list of what was asked, and can be told to misbehave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

Trick = Callable[["Handler"], bool]


class Handler(SimpleHTTPRequestHandler):
    """Serves files; a trick that returns True has answered by itself."""

    protocol_version = "HTTP/1.1"
    server: Served

    def log_message(self, *_: object) -> None:
        return

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if not self.server.trick(self):
            super().do_GET()

    def answer(self, status: int, body: bytes = b"", **headers: str) -> bool:
        """Send a whole answer; `Content_Type` is the header Content-Type."""
        self.send_response(status)
        self.send_header("Content-Length", headers.pop("Content_Length", str(len(body))))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        return True


class Served(ThreadingHTTPServer):
    """The server; `asked` are the paths in the order they came."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.asked: list[str] = []
        self.trick: Trick = lambda _: False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no news."""


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """Serve a folder while the block lasts."""
    server = Served(folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
