"""As much of the S3 protocol as a store needs, on a loopback port, objects in memory."""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

KEY = "KEYOFTHETESTS"
SECRET = "the-secret-that-nobody-may-see"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # header and body in one packet: two cost 40 ms each time
    server: SmallS3
    outcome: str | None = None

    def log_message(self, *_args: object) -> None:
        pass

    def parse_request(self) -> bool:
        """Let in who has the key; its signature is not looked at."""
        if not super().parse_request():
            return False
        self.outcome = None
        status: int | str | None = 403
        if f"Credential={KEY}/" in self.headers.get("Authorization", ""):
            self.server.requests.append((self.command, self._asked()[0]))
            writes, fault = self.command in {"PUT", "POST", "DELETE"}, self.server.fault
            status = fault(*self.server.requests[-1]) if writes and fault is not None else None
        if status is None or status == "lost":
            self.outcome = status
            return True
        self._body()
        if status == "dropped":
            self.outcome = status
        self._answer(status if isinstance(status, int) else 500)
        self.wfile.flush()
        return False

    def _asked(self) -> tuple[str, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        return unquote(parts.path).lstrip("/").partition("/")[2], parse_qs(
            parts.query, keep_blank_values=True
        )

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, status: int, body: bytes = b"", *, send: bool = True, **headers: str) -> None:
        if self.outcome is not None:
            # The client sees its connection end; `lost` says after the request was done.
            self.close_connection = True
            self.server.fault.unanswered()
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if send:
            self.wfile.write(body)

    def do_GET(self, *, send: bool = True) -> None:
        key, query = self._asked()
        if "list-type" in query:
            return self._list(query["prefix"][0])
        found = self.server.objects.get(key)
        if found is None:
            return self._answer(404)
        data, etag, stamp = found
        status, headers = 200, {"ETag": etag, "Last_Modified": format_datetime(stamp, usegmt=True)}
        if wanted := self.headers.get("Range"):
            first, last = wanted.removeprefix("bytes=").split("-")
            headers["Content_Range"] = f"bytes {first}-{last}/{len(data)}"
            status, data = 206, data[int(first) : int(last) + 1]
        return self._answer(status, data, send=send, **headers)

    def do_HEAD(self) -> None:
        self.do_GET(send=False)

    def do_PUT(self) -> None:
        key, query = self._asked()
        data = self._body()
        if "partNumber" in query:
            self.server.uploads[query["uploadId"][0]][int(query["partNumber"][0])] = data
            return self._answer(200, ETag='"part"')
        if source := self.headers.get("x-amz-copy-source"):
            return self._copy(unquote(source).lstrip("/").partition("/")[2], key)
        with self.server.mutex:
            found = self.server.objects.get(key)
            wanted = self.headers.get("If-Match")
            if (found and self.headers.get("If-None-Match") == "*") or (
                wanted and (found is None or found[1] != wanted)
            ):
                return self._answer(412)
            return self._answer(200, ETag=self.server.store(key, data))

    def _copy(self, source: str, key: str) -> None:
        with self.server.mutex:
            found = self.server.objects.get(source)
            if found is None:
                return self._answer(404)
            etag = escape(self.server.store(key, found[0]))
        return self._answer(200, f"<CopyObjectResult><ETag>{etag}</ETag></CopyObjectResult>".encode())

    def do_POST(self) -> None:
        key, query = self._asked()
        body = self._body()
        if "delete" in query:
            keys = [unescape(key) for key in re.findall("<Key>(.*?)</Key>", body.decode())]
            for gone in keys:
                self.server.objects.pop(gone, None)
            rows = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            text = f"<DeleteResult>{rows}</DeleteResult>"
        elif "uploads" in query:
            upload = secrets.token_hex(8)
            self.server.uploads[upload] = {}
            text = (
                f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId>"
                "</InitiateMultipartUploadResult>"
            )
        else:
            parts = self.server.uploads.pop(query["uploadId"][0])
            etag = escape(self.server.store(key, b"".join(data for _, data in sorted(parts.items()))))
            text = f"<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>"
        return self._answer(200, text.encode())

    def _list(self, prefix: str) -> None:
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{stamp:%Y-%m-%dT%H:%M:%S}.000Z</LastModified>"
            f"<ETag>{escape(etag)}</ETag><Size>{len(data)}</Size></Contents>"
            for key, (data, etag, stamp) in sorted(self.server.objects.items())
            if key.startswith(prefix)
        )
        self._answer(
            200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode()
        )


class SmallS3(ThreadingHTTPServer):
    """One bucket; times have whole seconds, as in S3."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mutex = threading.Lock()
        self.objects: dict[str, tuple[bytes, str, datetime]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.requests: list[tuple[str, str]] = []
        # What decides about each request that changes something: `ServerFaults` of tests/faults.py.
        self.fault: Any = None

    def store(self, key: str, data: bytes) -> str:
        etag = f'"{hashlib.md5(data).hexdigest()}"'
        self.objects[key] = (data, etag, datetime.now(UTC).replace(microsecond=0))
        return etag

    @property
    def options(self) -> dict[str, object]:
        """What `ObjectStore` needs to reach it."""
        return {
            "endpoint": f"http://127.0.0.1:{self.server_address[1]}",
            "access_key_id": KEY,
            "secret_access_key": SECRET,
            "region": "here",
            "virtual_hosted_style_request": False,
            "client_options": {"allow_http": True},
        }


@contextmanager
def serving() -> Iterator[SmallS3]:
    """Serve while the block lasts."""
    server = SmallS3()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
