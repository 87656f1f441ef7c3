"""Rows that are kept once they were read (view:C104)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trueline.view.plan.node import Node, OneInput


@dataclass(frozen=True, eq=False)
class Cache(OneInput):
    """The rows of the input, kept once they were read; what is kept is kept elsewhere (`execute.cache`)."""

    @property
    def title(self) -> str:
        return "cached"

    @property
    def can_shuffle(self) -> bool:
        """Rows that are kept can be had in any order (view:C104)."""
        return True

    @property
    def serial(self) -> str | None:
        """Until they are kept, rows are read in order, for all readers."""
        return "rows are kept as they are first read"

    def _parameters(self) -> Iterator[str]:
        yield self.below.key
        yield secrets.token_hex(16)

    def __reduce__(self) -> tuple[Any, ...]:
        # What is kept stays here: elsewhere the rows are those of the input.
        return _as_it_is, (self.below,)


def _as_it_is(node: Node) -> Node:
    return node
