"""Arrow schemas in the deprecated form blocks once carried them in."""

from __future__ import annotations


def bare(message: bytes) -> bytes:
    """Cut the Schema table out of an IPC message: a root offset, and everything it points over."""
    length = int.from_bytes(message[4:8], "little")
    body = message[8 : 8 + length]
    table = int.from_bytes(body[:4], "little")
    vtable = table - int.from_bytes(body[table : table + 4], "little", signed=True)
    slot = table + int.from_bytes(body[vtable + 8 : vtable + 10], "little")
    header = slot + int.from_bytes(body[slot : slot + 4], "little")
    # The root offset takes the first eight bytes, so that everything keeps its alignment.
    return (header + 8).to_bytes(8, "little") + body
