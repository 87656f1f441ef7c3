"""Rows that Spark computes: the same ones, with the same ids, in the same order."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trueline.view.plan.node import OneInput


@dataclass(frozen=True, eq=False)
class OnSpark(OneInput):
    """The rows of the input, computed on Spark: in this session, or in one of ours."""

    session: Callable[[], Any] | None

    @property
    def title(self) -> str:
        return "on Spark"

    def _parameters(self) -> Iterator[str]:
        yield self.below.key
        yield secrets.token_hex(16)
