"""Ready-made steps: look values up, mask, repair, validate."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import CheckFailed, InputError, SchemaError, check_memory
from trueline.run import Step
from trueline.run.step import OnError


class Enrich(Step):
    """Adds columns of a lookup table; made by `enrich`."""

    name = "enrich"

    def __init__(
        self, lookup: pa.Table, on: tuple[str, ...], columns: tuple[str, ...], on_error: OnError
    ) -> None:
        super().__init__(on_error=on_error)
        self.lookup, self.on, self.columns = lookup, on, columns

    def map(self, key: Any, value: pa.Table) -> pa.Table:
        """Return the rows with what is known of them; a file without the key stays as it is."""
        if not set(self.on) <= set(value.column_names):
            return value
        places = self._places(value)
        for name in self.columns:
            found = pc.take(self.lookup[name], places)
            if name not in value.column_names:
                value = value.append_column(pa.field(name, found.type), found)
                continue
            place = value.schema.get_field_index(name)
            before = value.column(place)
            if before.null_count:
                try:
                    filled = pc.coalesce(before, found.cast(before.type))
                except pa.ArrowException as error:
                    check_memory(error, "enriching the rows")
                    raise _unlike(name, error) from None
                value = value.set_column(place, value.schema.field(place), filled)
        return value

    def _places(self, table: pa.Table) -> Any:
        """Return the row of the lookup table for each row, null where there is none."""
        try:
            keys = [self.lookup[name].cast(table[name].type) for name in self.on]
        except pa.ArrowException as error:
            check_memory(error, "enriching the rows")
            raise _unlike(", ".join(self.on), error) from None
        if len(keys) == 1:
            return pc.index_in(table[self.on[0]], value_set=keys[0].combine_chunks(), skip_nulls=True)
        known = {row: place for place, row in enumerate(zip(*(k.to_pylist() for k in keys), strict=True))}
        asked = zip(*(table[name].to_pylist() for name in self.on), strict=True)
        return pa.array([None if None in row else known.get(row) for row in asked], pa.int32())


def enrich(
    lookup: Any,
    on: str | Sequence[str],
    columns: Sequence[str] | None = None,
    *,
    on_error: OnError = "fail_run",
) -> Enrich:
    """Add columns of a small table by a key that both have; columns that are there are filled where null.

    `lookup` is an Arrow table, a frame, a list of dictionaries or a view
    (`ws["cities"].view(at=…)`); its keys are unique. Rows whose key is not in
    it stay, without the columns.

    >>> import pyarrow as pa
    >>> step = enrich([{"city": "Bern", "canton": "BE"}], on="city")
    >>> step.map("a.csv", pa.table({"city": ["Bern", "Paris"]}))["canton"].to_pylist()
    ['BE', None]
    """
    table = pa.Table.from_pylist(list(lookup)) if isinstance(lookup, list) else pa.table(lookup)
    keys = (on,) if isinstance(on, str) else tuple(on)
    chosen = tuple(columns) if columns is not None else tuple(n for n in table.column_names if n not in keys)
    missing = [name for name in (*keys, *chosen) if name not in table.column_names]
    if missing or not keys or not chosen:
        raise SchemaError(
            f"the lookup table has no column {missing[0]!r}" if missing else "there is nothing to look up",
            remedy=f"it has {', '.join(table.column_names)}",
        )
    counted = table.group_by(list(keys)).aggregate([([], "count_all")])
    if counted.num_rows < table.num_rows:
        raise InputError(
            f"the lookup table has {table.num_rows - counted.num_rows:,} rows whose {', '.join(keys)} "
            "is that of another",
            remedy="leave one row for each key",
            code="DuplicateKey",
        )
    return Enrich(table.combine_chunks(), keys, chosen, on_error)


def _unlike(names: str, error: Exception) -> SchemaError:
    return SchemaError(
        f"{names}: the lookup table and the file differ in type: {error}", remedy="cast the lookup table"
    )


How: TypeAlias = Literal["hash", "missing", "stars"]
_DIGITS = 32


class Mask(Step):
    """Masks columns; made by `mask`. `hides` are the columns whose unreadable cells are not listed either."""

    name = "mask"

    def __init__(
        self, columns: tuple[str, ...], how: How, key: bytes | None, *, shown: int, on_error: OnError
    ) -> None:
        if not columns:
            raise InputError("there is nothing to mask", remedy='give columns: mask("email", key=…)')
        if how not in ("hash", "missing", "stars"):
            raise InputError(f"how={how!r} is not a way to mask", remedy="give hash, missing or stars")
        if how == "hash" and not key:
            raise InputError(
                "a hash without a key can be reversed by trying values",
                remedy="give key=…, a secret that stays the same, or how='missing' or 'stars'",
                code="NoKey",
            )
        super().__init__(on_error=on_error)
        self.how, self.shown, self.hides = how, shown, frozenset(columns)
        self._key = key

    def map(self, key: Any, value: pa.Table) -> pa.Table:
        """Return the rows with masked columns; a file without them stays as it is."""
        for name in sorted(self.hides & set(value.column_names)):
            place = value.schema.get_field_index(name)
            column = value.column(place)
            made = self._masked(column)
            value = value.set_column(place, pa.field(name, made.type), made)
        return value

    def _masked(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if self.how == "missing":
            return pa.chunked_array([pa.nulls(len(column), column.type)])
        texts = column if pa.types.is_string(column.type) else column.cast(pa.string())
        coded = texts.combine_chunks().dictionary_encode()
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        known = [self._one(text) for text in coded.dictionary.to_pylist()]
        found = pc.take(pa.array(known, pa.string()), coded.indices)
        return pa.chunked_array([found])

    def _one(self, text: str | None) -> str | None:
        if text is None:
            return None
        if self.how == "stars":
            kept = text[len(text) - self.shown :] if 0 < self.shown < len(text) else ""
            return "***" + kept
        assert self._key is not None
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()[:_DIGITS]

    def __repr__(self) -> str:
        return f"<Mask {', '.join(sorted(self.hides))}: {self.how}>"


def mask(
    *columns: str,
    how: How = "hash",
    key: str | bytes | None = None,
    shown: int = 0,
    on_error: OnError = "fail_run",
) -> Mask:
    """Mask columns: by a keyed hash, which still tells values apart, by stars, or by null.

    `hash` is HMAC-SHA-256 with `key`, 32 hexadecimal digits; `stars` shows the
    last `shown` characters; `missing` makes the column null. Cells of these
    columns that could not be read are counted, and their text is not kept.

    >>> import pyarrow as pa
    >>> step = mask("card", how="stars", shown=4)
    >>> step.map("a.csv", pa.table({"card": ["4111111111111111", None]}))["card"].to_pylist()
    ['***1111', None]
    """
    secret = key.encode() if isinstance(key, str) else key
    return Mask(columns, how, secret, shown=shown, on_error=on_error)


class Repair(Step):
    """Repairs columns; made by `repair`."""

    name = "repair"

    def __init__(self, columns: dict[str, str], on_error: OnError) -> None:
        if not columns:
            raise InputError("there is nothing to repair", remedy='give columns: repair(city="trim(city)")')
        super().__init__(on_error=on_error)
        self.columns = columns

    def map(self, key: Any, value: pa.Table) -> pa.Table:
        """Return the rows with repaired columns; where nothing changes, as they are."""
        from trueline.view import View

        wanted = {name: text for name, text in self.columns.items() if name in value.column_names}
        if not wanted:
            return value
        found = View.from_arrow(value).with_columns(wanted).to_arrow()
        for name in wanted:
            place = value.schema.get_field_index(name)
            column, before = found[name], value.column(place)
            if column.type != before.type or not column.equals(before):
                made = pa.field(name, column.type, metadata=value.schema.field(place).metadata)
                value = value.set_column(place, made, column)
        return value


def repair(
    mapping: dict[str, str] | None = None, /, *, on_error: OnError = "fail_run", **columns: str
) -> Repair:
    """Fix columns by expressions over the row, all of them over the row as it came.

    A file without a column, or whose values are right already, stays as it is.

    >>> import pyarrow as pa
    >>> step = repair(city="trim(city)", price="abs(price)")
    >>> step.map("a.csv", pa.table({"city": [" Bern", "Basel "]})).to_pydict()
    {'city': ['Bern', 'Basel']}
    """
    return Repair({**(mapping or {}), **columns}, on_error)


class Validate(Step):
    """Checks rows against conditions; made by `validate`."""

    name = "validate"

    def __init__(
        self, conditions: tuple[str, ...], parameters: dict[str, object], *, drop: bool, on_error: OnError
    ) -> None:
        if not conditions:
            raise InputError("there is nothing to validate", remedy='give conditions: validate("price >= 0")')
        super().__init__(on_error=on_error)
        self.conditions, self.parameters, self.drop = conditions, parameters, drop

    def map(self, key: Any, value: pa.Table) -> pa.Table:
        """Return the rows as they are; with `drop`, without those that break a condition."""
        kept: Any = None
        for condition in self.conditions:
            met = pc.fill_null(_answers(value, condition, self.parameters), True)
            broken = value.num_rows - (pc.sum(met).as_py() or 0)
            if not broken:
                continue
            if not self.drop:
                first = pc.index(met, False).as_py()
                raise CheckFailed(
                    f"{broken:,} of {value.num_rows:,} rows of {key} break {condition!r}, "
                    f"the first is row {first:,}",
                    remedy="fix the file, or leave such rows or files out: drop=True, on_error='skip_key'",
                    path=key,
                    condition=condition,
                    rows=broken,
                    first=first,
                )
            kept = met if kept is None else pc.and_(kept, met)
        return value if kept is None else value.filter(kept)


def validate(
    *conditions: str, drop: bool = False, on_error: OnError = "fail_run", **parameters: object
) -> Validate:
    """Check the rows of files against conditions, written as in `View.filter`; `:name` is a parameter.

    As with a CHECK in SQL, a condition is broken where it is false; where it
    has no answer, because a value is null, it is not. A file with such rows
    fails; with `drop` the rows are left out instead.

    >>> import pyarrow as pa
    >>> step = validate("price >= :least", least=0, drop=True)
    >>> step.map("a.csv", pa.table({"price": [5, -1, None]}))["price"].to_pylist()
    [5, None]
    """
    return Validate(conditions, parameters, drop=drop, on_error=on_error)


def _answers(table: pa.Table, condition: str, parameters: dict[str, object]) -> Any:
    from trueline.view import View

    name = "met"
    while name in table.column_names:
        name += "_"
    used = {key: value for key, value in parameters.items() if f":{key}" in condition}
    found = View.from_arrow(table).with_columns({name: condition}, **used).to_arrow()[name]
    if not pa.types.is_boolean(found.type):
        raise InputError(
            f"{condition!r} is not a condition: its type is {found.type}", remedy="compare it to something"
        )
    return found
