"""Cells that tasks found bad, counted as in this process: notes in scratch that both see (decision 2).

A piece may be read in any job of a view, and more than once: before a shuffle, to choose ranges, again where
a task was lost. So what its reading has found is noted by the piece, and each is counted by itself.
"""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trueline.chain.store.scratch import Scratch
from trueline.errors import visible
from trueline.spark.results import decode, encode, unreadable
from trueline.view.plan.node import Node, steps
from trueline.view.source_cells import BadCell, ReadCounts, known_tally

_KIND: Final = "notes-"
_FILE: Final = re.compile(_KIND + r"([0-9a-f]{32})-(\d+)-[0-9a-f]{32}\.json")
# More are the notes of no view of ours.
_MOST_BYTES: Final = 16 << 20
_MOST_TEXT: Final = 1_000


@dataclass(frozen=True)
class BadCellNotes:
    """Where tasks that read the pieces of one pass over a source note what was bad."""

    scratch: Scratch
    read: str

    @classmethod
    def of(cls, scratch: Scratch) -> BadCellNotes:
        """Return the place for one pass more."""
        return cls(scratch, uuid.uuid4().hex)

    def write(self, number: int, counts: Sequence[ReadCounts]) -> None:
        """Note what reading a piece has found, in a task; nothing for nothing."""
        found = {each.key: tuple(map(tuple, cells)) for each in counts if (cells := each.cells)}
        if found:
            self.scratch.write(f"{_KIND}{self.read}-{number}-{uuid.uuid4().hex}.json", encode(found))


def merge_notes(scratch: Scratch, node: Node) -> None:
    """Count what tasks have noted for the sources of a node, with a warning for each file of its cells."""
    tallies = {tally.key: tally for each in steps(node) if (tally := known_tally(each)) is not None}
    passes: dict[tuple[str, str, str], dict[int, int]] = defaultdict(dict)
    for name in scratch.names(_KIND):
        known = _FILE.fullmatch(name)
        with scratch.open(name) as file:
            data = file.read(_MOST_BYTES + 1)
        if known is None or len(data) > _MOST_BYTES:
            raise unreadable(f"{name!r:.80} is not a note of bad cells")
        for key, cells in _read(data).items():
            for cell in cells if key in tallies else ():
                if cell.part is not None:
                    tallies[key].note_bad(cell.path, cell.part, {cell.column: cell.number})
                    continue
                number, pieces = int(known[2]), passes[known[1], key, cell.column]
                pieces[number] = max(cell.number, pieces.get(number, 0))
    for (_, key, column), pieces in passes.items():
        tallies[key].note_pass(column, sum(pieces.values()))


def _read(data: bytes) -> dict[str, list[BadCell]]:
    """Return notes, which are other machines' word and only ever read as data."""
    found = decode(data)
    try:
        return {str(key): [_cell(*each) for each in cells] for key, cells in found.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise unreadable(f"{type(error).__name__}: {error!s:.200}") from None


def _cell(path: object, part: object, column: object, count: object) -> BadCell:
    if not isinstance(column, str) or type(count) is not int or count < 0:
        raise TypeError("a note of bad cells has a column and a count")
    if isinstance(part, tuple):
        first, last = part
        if type(first) is not int or type(last) is not int:
            raise TypeError("a part of a file is two numbers")
        part = first, last
    elif part is not None and type(part) is not int:
        raise TypeError("a file is a number")
    return BadCell(visible(str(path), lines=False)[:_MOST_TEXT], part, column, count)
