"""A file server on loopback that does what a test tells it to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Page:
    """What is served under a path; `send` may say it in its own way."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    etag: str | None = None
    last_modified: str | None = None
    send: Callable[[BaseHTTPRequestHandler], None] | None = None


class Server:
    """Pages by path, and what was asked for: (path, headers)."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.url = f"http://{address[0]}:{address[1]}"
        self.pages: dict[str, Page] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []

    def serve(self, path: str, body: bytes = b"", **how: Any) -> str:
        """Serve bytes under a path; returns the address."""
        self.pages[path] = Page(body, **how)
        return self.url + path

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.asked.append((handler.path, headers))
        page = self.pages.get(handler.path)
        if page is None:
            handler.send_error(404)
        elif page.send is not None:
            page.send(handler)
        elif _unchanged(page, headers):
            handler.send_response(304)
            handler.end_headers()
        else:
            handler.send_response(page.status)
            extra = {"ETag": page.etag, "Last-Modified": page.last_modified, **page.headers}
            for name, value in {"Content-Length": str(len(page.body)), **extra}.items():
                if value is not None:
                    handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(page.body)


def _unchanged(page: Page, headers: dict[str, str]) -> bool:
    if page.etag is not None and "if-none-match" in headers:
        return headers["if-none-match"] == page.etag
    return page.last_modified is not None and headers.get("if-modified-since") == page.last_modified


@contextmanager
def serving() -> Iterator[Server]:
    """A server for as long as the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.close_connection = True
            server.answer(self)

        def log_message(self, *_: object) -> None:
            """Nothing is told."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server = Server(http.server_address[:2])  # type: ignore[arg-type]
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
