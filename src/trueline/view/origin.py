"""Exactly which records a view was made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Origin:
    """A dataset at the end of a commit: its name and id, the block, and the last offset there.

    `after` is where the records begin, None for the dataset's first record;
    `removed` says how many of them were removed on purpose and are passed over.

    >>> import tempfile, pyarrow as pa, trueline as tl
    >>> with tempfile.TemporaryDirectory() as folder, tl.open(folder, create=True) as ws:
    ...     sales = ws.create("sales")
    ...     commit = sales.append(pa.table({"price": [9.5, 12.0]}))
    ...     sales.view().origins["sales"].offset
    1
    """

    dataset: str
    id: str
    block: str
    offset: int | None
    after: str | None = None
    removed: int = 0

    def __str__(self) -> str:
        end = "no records" if self.offset is None else f"offset {self.offset:,}"
        since = f", after {self.after[-8:]}" if self.after else ""
        gone = f", {self.removed:,} removed" if self.removed else ""
        return f"{self.dataset}@{self.block[-8:]} ({end}{since}{gone})"


_NOTED: Final = {"dataset": str, "id": str, "block": str, "offset": int, "after": str, "removed": int}


def noted(origin: Origin) -> dict[str, Any]:
    """Return an origin as a commit records it; what is absent is left out.

    >>> noted(Origin("towns", "did:odf:f1", "f16200001", 7))
    {'dataset': 'towns', 'id': 'did:odf:f1', 'block': 'f16200001', 'offset': 7}
    """
    values = {name: getattr(origin, name) for name in _NOTED if name != "removed" or origin.removed}
    return {name: value for name, value in values.items() if value is not None}


def of_note(note: object) -> Origin | None:
    """Read an origin as a commit recorded it; None for what is not one, which another writer left."""
    if not isinstance(note, Mapping):
        return None
    values: dict[str, Any] = {name: note.get(name) for name in _NOTED}
    right = all(value is None or type(value) is _NOTED[name] for name, value in values.items())
    if not right or None in (values["dataset"], values["id"], values["block"]):
        return None
    return Origin(**values | {"removed": values["removed"] or 0})


def united(several: Iterable[Mapping[str, Origin]]) -> dict[str, Origin]:
    """All origins by name; where a dataset is read at several commits, the others as `name@commit`.

    >>> old, new = (Origin("towns", "did:odf:f1", block, 7) for block in ("f16200001", "f16200002"))
    >>> list(united([{"towns": old}, {"towns": new}, {"towns": old}]))
    ['towns', 'towns@16200002']
    """
    found: dict[str, Origin] = {}
    for name, origin in (pair for each in several for pair in each.items()):
        if name.startswith(f"{origin.dataset}@") and origin in found.values():
            continue  # here it came first, and has the name alone
        if found.setdefault(name, origin) != origin:
            key = f"{origin.dataset}@{origin.block[-8:]}"
            if found.setdefault(key, origin) != origin:  # the same commit, from another beginning
                found[str(origin)] = origin
    return found


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """Which column of which source a column is: the source in words, its datasets, the name there."""

    source: str
    column: str
    index: int
    origins: tuple[Origin, ...] = ()

    def __str__(self) -> str:
        where = ", ".join(map(str, self.origins)) or self.source
        return f"{self.column} of {where}"
