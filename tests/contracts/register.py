"""The numbered contracts as data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent

AREAS = {
    "view": "what a view and its cursors promise",
    "kit": "what the conformance kit checks",
    "chain": "what the chain of blocks refuses",
    "run": "what a run of steps keeps",
    "align": "what aligned reads keep",
    "guard": "what no stranger's data, folder, remote or query can do",
    "exchange": "what a view keeps wherever it runs",
    "derive": "what a derived dataset keeps",
    "incr": "what an incremental update keeps",
    "trace": 'what an answer to "where from" keeps',
    "cut": "what agreeing reads keep",
    "model": "what a fitted model keeps",
}

NEEDS_NO_TEST = {"dropped", "permits"}


@dataclass(frozen=True, slots=True)
class Contract:
    """One numbered promise: `strength` is must, should, convention, permits or dropped."""

    id: str
    strength: str
    text: str
    piece: str
    why: str = ""
    error: str = ""

    @property
    def area(self) -> str:
        return self.id.split(":")[0]


@cache
def contracts() -> Mapping[str, Contract]:
    """All contracts by id, in the order of the file."""
    rows = json.loads((HERE / "contracts.json").read_text(encoding="utf-8"))
    known = [
        Contract(r["id"], r["strength"], r["text"], r["issue"], r.get("why", ""), r.get("error", ""))
        for r in rows
    ]
    return {contract.id: contract for contract in known}


def done() -> frozenset[str]:
    """The pieces of work that are done."""
    lines = (HERE / "done.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def unknown(marked: Mapping[str, Sequence[str]]) -> list[str]:
    """Ids that tests name and no contract has, each with the test that names it."""
    return [f"{name} in {tests[0]}" for name, tests in sorted(marked.items()) if name not in contracts()]


def missing(marked: Mapping[str, Sequence[str]], pieces: frozenset[str]) -> list[Contract]:
    """Contracts of these pieces that have no test and are neither dropped nor permissions."""
    return [
        c
        for c in contracts().values()
        if c.piece in pieces and c.strength not in NEEDS_NO_TEST and not marked.get(c.id)
    ]
