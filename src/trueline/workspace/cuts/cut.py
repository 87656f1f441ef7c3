"""A cut: one position of each root, which everything that is read or computed together rests on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from trueline.chain.datatypes import Extra
from trueline.chain.head_state import Position
from trueline.chain.instant import Instant
from trueline.errors import InputError, UnsupportedVersion
from trueline.identity.dataset_id import DatasetId
from trueline.workspace.locations import cuts_damaged

_FORMAT: Final = "trueline/cut"
_FORMAT_OF_MANY: Final = "trueline/cuts"
_VERSION: Final = 1
_FIELDS: Final = ("format", "version", "number", "time", "positions", "reset", "broken", "transactions")
# Of a cut among many, which says only what is not as in the one before it.
_GONE: Final = "gone"
_MOST_ROOTS: Final = 100_000
_MOST_BROKEN: Final = 10_000
_MOST_TRANSACTIONS: Final = 10_000
_MOST_NUMBER: Final = (1 << 63) - 1
TRANSACTION: Final = re.compile(r"[0-9a-f]{32}")
# Of each root of a transaction, where it was before.
Before: TypeAlias = Mapping[DatasetId, Position | None]
# What parsing JSON that somebody else wrote can raise.
UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError)


@dataclass(frozen=True, slots=True)
class Cut:
    """Positions of roots by dataset id; equal to another cut if the positions are.

    A recorded one has a `number` (0: it was not recorded) and a `time` that no block of it is later than.
    `reset` are roots that went back since the cut before, `broken` the transactions that did not finish and
    whose appends this cut is the first to pass, perhaps in part. `transactions` are those over several roots
    that did, which it is the first to show. `more` are fields of later versions.

    >>> from trueline.identity.multihash import Multihash
    >>> sales = DatasetId("did:odf:fed01" + "0" * 64)
    >>> cut = Cut({sales: Position(Multihash.of(b"a block"), 41)}, 7)
    >>> cut[sales].offset, len(cut), cut == Cut(cut.positions), Cut.from_bytes(cut.to_bytes(), "7").number
    (41, 1, True, 7)
    >>> print(cut)
    cut 7: 00000000@41
    """

    positions: Mapping[DatasetId, Position] = field(default_factory=dict)
    number: int = field(default=0, compare=False)
    time: Instant | None = field(default=None, compare=False)
    reset: frozenset[DatasetId] = field(default=frozenset(), compare=False)
    broken: tuple[str, ...] = field(default=(), compare=False)
    more: Mapping[str, Any] = field(default_factory=dict, compare=False)
    transactions: Mapping[str, Before] = field(default_factory=dict, compare=False)

    def __hash__(self) -> int:
        return hash(frozenset(self.positions.items()))

    def __getitem__(self, dataset: DatasetId) -> Position:
        return self.positions[dataset]

    def __contains__(self, dataset: object) -> bool:
        return dataset in self.positions

    def __len__(self) -> int:
        return len(self.positions)

    def __bool__(self) -> bool:
        return True

    def of(self, roots: Iterable[DatasetId]) -> Cut:
        """Return the positions of some roots alone, without a number: what rests on them compares these."""
        return Cut({name: self.positions[name] for name in roots if name in self.positions})

    # --- stored ---------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values; fields that say nothing are left out."""
        value: dict[str, Any] = {
            **self.more,
            "format": _FORMAT,
            "version": _VERSION,
            "positions": {str(name): at.to_dict() for name, at in self.positions.items()},
        }
        if self.number:
            value["number"] = self.number
        if self.time is not None:
            value["time"] = str(self.time)
        if self.reset:
            value["reset"] = sorted(map(str, self.reset))
        if self.broken:
            value["broken"] = list(self.broken)
        if self.transactions:
            value["transactions"] = {
                each: {str(name): None if at is None else at.to_dict() for name, at in roots.items()}
                for each, roots in self.transactions.items()
            }
        return value

    def to_bytes(self) -> bytes:
        """Return the canonical text: equal cuts with one number and time have equal bytes."""
        return Extra.of(self.to_dict()).entries.encode() + b"\n"

    @classmethod
    def from_bytes(cls, raw: bytes, path: str, number: int | None = None) -> Cut:
        """Read a cut; what is not one, or has another number than its place says, is damage at `path`."""
        try:
            cut = cls.from_dict(_parsed(raw), path)
        except UnsupportedVersion:
            raise
        except UNREADABLE as error:
            raise cuts_damaged(path, reason(error)) from None
        if number is not None and cut.number != number:
            raise cuts_damaged(path, f"it is the cut {cut.number:,}")
        return cut

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], path: str = "a cut") -> Cut:
        """Read what `to_dict` gave; what is not of that form raises a `ValueError` of some kind."""
        check_version(value, _FORMAT, _VERSION, path)
        number, time = value.get("number", 0), value.get("time")
        positions, broken = value["positions"], value.get("broken", [])
        if type(number) is not int or not 0 <= number <= _MOST_NUMBER:
            raise ValueError(f"its number is {number!r:.80}")
        if not isinstance(positions, dict) or len(positions) > _MOST_ROOTS:
            raise ValueError("its positions are not a mapping, or too many")
        return cls(
            {dataset_of(name): Position.of(at) for name, at in positions.items()},
            number,
            None if time is None else Instant.parse(time),
            frozenset(dataset_of(name) for name in _listed(value.get("reset", []), _MOST_ROOTS)),
            tuple(_transaction(name) for name in _listed(broken, _MOST_BROKEN)),
            {key: item for key, item in value.items() if key not in _FIELDS},
            _transactions(value.get("transactions", {})),
        )

    # --- shown ------------------------------------------------------------------------

    def __str__(self) -> str:
        shown = ", ".join(f"{name.short}@{_offset(at)}" for name, at in sorted(self.positions.items())[:8])
        rest = f" and {len(self) - 8:,} more" if len(self) > 8 else ""
        return f"cut {self.number or 'not recorded'}: {shown or 'no records'}{rest}"

    def _repr_html_(self) -> str:
        from trueline.console.notebook import html_table

        title = f"Cut {self.number}" if self.number else "Cut"
        if self.time is not None:
            title += f", {str(self.time)[:19].replace('T', ' ')} UTC"
        if self.broken:
            title += f"; transactions that did not finish: {', '.join(name[:8] for name in self.broken)}"
        rows = [
            (str(name), _offset(at), at.block.short, "reset" if name in self.reset else "")
            for name, at in sorted(self.positions.items())
        ]
        gone = [(str(name), "none", "", "reset") for name in sorted(self.reset) if name not in self]
        return html_table(title, ("root", "last offset", "commit", ""), rows + gone)


def _offset(at: Position) -> str:
    return "no record" if at.offset is None else str(at.offset)


def dataset_of(text: object) -> DatasetId:
    """Read a dataset id in the one form in which it is written."""
    found = DatasetId.parse(text) if isinstance(text, str) else None
    if found is None or found != text:
        raise ValueError(f"{text!r:.80} is not the id of a dataset")
    return found


def reason(error: BaseException) -> str:
    """Return in a line why something could not be read."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def check_version(value: Mapping[str, Any], form: str, version: int, path: str) -> None:
    """Refuse what is of another format (as damage) or of a later version."""
    said, number = value["format"], value["version"]
    if said != form or type(number) is not int or number < 1:
        raise ValueError(f"its format is {said!r:.80}, version {number!r:.80}")
    if number > version:
        raise UnsupportedVersion(
            f"{path} has version {number}, this Trueline knows {version}",
            remedy="use the newer Trueline that wrote it",
            path=path,
            version=number,
        )


def _parsed(raw: bytes) -> dict[str, Any]:
    value = json.loads(raw)
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 (damage, whatever its type)
    return value


def _listed(value: object, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError("a list of it is not a list, or too long")
    return value


def _transaction(name: object) -> str:
    if not isinstance(name, str) or not TRANSACTION.fullmatch(name):
        raise ValueError(f"{name!r:.80} is not the id of a transaction")
    return name


def _transactions(value: object) -> dict[str, Before]:
    if not isinstance(value, dict) or len(value) > _MOST_TRANSACTIONS:
        raise ValueError("its transactions are not a mapping, or too many")
    return {
        _transaction(each): {
            dataset_of(name): None if at is None else Position.of(at) for name, at in roots.items()
        }
        for each, roots in value.items()
    }


# --- many in one object -----------------------------------------------------------------


def fold_cuts(cuts: Sequence[Cut]) -> bytes:
    """Write cuts that follow each other as one object: the first whole, of the others what changed."""
    listed: list[dict[str, Any]] = []
    before: Mapping[DatasetId, Position] = {}
    for cut in cuts:
        value = cut.to_dict()
        value["positions"] = {
            str(name): at.to_dict() for name, at in cut.positions.items() if before.get(name) != at
        }
        if gone := sorted(str(name) for name in before if name not in cut.positions):
            value[_GONE] = gone
        listed.append(value)
        before = cut.positions
    document = {"format": _FORMAT_OF_MANY, "version": _VERSION, "cuts": listed}
    return Extra.of(document).entries.encode() + b"\n"


def unfold_cuts(raw: bytes, path: str, first: int, count: int) -> Iterator[Cut]:
    """Read cuts `first` to `first + count - 1` from one object, one after the other.

    Anything else in it is damage at `path`, and raises where it is met.
    """
    try:
        value = _parsed(raw)
        check_version(value, _FORMAT_OF_MANY, _VERSION, path)
        items = _listed(value["cuts"], count)
        if len(items) != count:
            raise ValueError(f"it has {len(items):,} cuts, not {count:,}")
        before: Mapping[DatasetId, Position] = {}
        for number, item in enumerate(items, first):
            cut = _continued(before, item, path)
            if cut.number != number or len(cut) > _MOST_ROOTS:
                raise ValueError(f"it has too many roots, or cut {cut.number:,} in the wrong place")
            yield cut
            before = cut.positions
    except UnsupportedVersion:
        raise
    except UNREADABLE as error:
        raise cuts_damaged(path, reason(error)) from None


def _continued(before: Mapping[DatasetId, Position], item: Mapping[str, Any], path: str) -> Cut:
    """Read a cut of which only what changed is written."""
    gone = {dataset_of(name) for name in _listed(item.get(_GONE, []), _MOST_ROOTS)}
    cut = Cut.from_dict({key: of for key, of in item.items() if key != _GONE}, path)
    kept = {name: at for name, at in before.items() if name not in gone} if gone else before
    return replace(cut, positions={**kept, **cut.positions})
