"""A ready-made step that holds rows to conditions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import CheckFailed, InputError
from trueline.run import Step
from trueline.run.step import OnError


class Validate(Step):
    """Holds rows to conditions; made by `validate`."""

    name = "validate"

    def __init__(
        self, conditions: tuple[str, ...], parameters: dict[str, object], *, drop: bool, on_error: OnError
    ) -> None:
        if not conditions:
            raise InputError(
                "there is nothing to hold rows to", remedy='give conditions: validate("price >= 0")'
            )
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
                    remedy="mend the file, or leave such rows or files out: drop=True, on_error='skip_key'",
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
    """Hold the rows of files to conditions, written as in `View.filter`; `:name` stands for a parameter.

    As with a CHECK in SQL, a condition is broken where it is false; where it
    has no answer, because a value is missing, it is not. A file with such rows
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
            f"{condition!r} is no condition: it is {found.type}", remedy="compare it to something"
        )
    return found
