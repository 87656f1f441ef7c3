"""The golden data of this room: blocks and manifests whose bytes and hashes other software published."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "golden" / "chain" / "odf"


@dataclass(frozen=True)
class Vector:
    """A block as JSON, with the bytes and the hash it must have."""

    name: str
    version: int
    block: dict[str, Any]
    raw: bytes
    hash: str
    size: int

    @property
    def id(self) -> str:
        return f"v{self.version}-{self.name}"


@cache
def vectors() -> tuple[Vector, ...]:
    return (*_read("blocks-v3.json"), *_read("blocks-v2-unaligned-timestamp.json"))


def vector(name: str, version: int = 3) -> Vector:
    return next(v for v in vectors() if v.name == name and v.version == version)


def manifest_text(name: str) -> str:
    return (FOLDER / "manifests" / name).read_text(encoding="utf-8")


def _read(name: str) -> list[Vector]:
    rows = json.loads((FOLDER / name).read_text(encoding="utf-8"))["vectors"]
    return [
        Vector(
            row["name"],
            row["manifest_version"],
            {key: value for key, value in row["block"].items() if value is not None},
            bytes.fromhex(row["bytes_hex"]),
            row["block_hash"],
            row["size"],
        )
        for row in rows
    ]
