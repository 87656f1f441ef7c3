"""The first step of every preparation: a file becomes rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from trueline.chain.store.scratch import Scratch
from trueline.dataset.prepare.rows import Parsed, RowsWriter
from trueline.errors import InputError
from trueline.readers import Reader, Source, looks_wrong
from trueline.run import Step
from trueline.run.step import OnError

# Of fewer rows it cannot be said that most are bad.
FEW_ROWS = 10


@dataclass(frozen=True, slots=True)
class File:
    """A file that is yet to be parsed: how, as which columns, and where its rows go."""

    path: str
    source: Source = field(compare=False, repr=False)
    reader: Reader = field(compare=False, repr=False)
    columns: pa.Schema = field(compare=False, repr=False)
    scratch: Scratch = field(compare=False, repr=False)


class Parse(Step):
    """Reads files; made by `parse`."""

    name = "parse"
    change_rate = 1.0  # nothing can be done ahead on a file that is not parsed

    def __init__(self, reader: Reader | None, max_bad: float | None, on_error: OnError) -> None:
        if on_error == "skip_step":
            raise InputError(
                "parse cannot be skipped: the next steps need rows", remedy="give fail_run or skip_key"
            )
        super().__init__(on_error=on_error)
        self.reader = reader
        self.max_bad = max_bad

    def map(self, key: Any, value: Any) -> Any:
        """Read a file to its end; one that is broken, or has too many bad cells, fails."""
        if not isinstance(value, File):
            return value
        writer = RowsWriter(value.scratch, value.columns)
        cells: list[pa.Table] = []
        try:
            reading = value.reader.read(value.source, value.columns)
            for batch in reading:
                writer.write(pa.Table.from_batches([batch.table]))
                if batch.bad.num_rows:
                    names = pa.array([value.path] * batch.bad.num_rows, pa.string())
                    cells.append(pa.Table.from_batches([batch.bad]).add_column(0, "file", names))
            # The rows are to be those of the bytes that were hashed: a file written to meanwhile is refused.
            value.source.open().close()
            self._refuse_garbage(value.path, reading.stats)
        except BaseException:
            writer.close()
            raise
        return writer.finish(Parsed(reading.stats, pa.concat_tables(cells) if cells else None))

    def _refuse_garbage(self, path: str, stats: Any) -> None:
        bad = dict(stats.bad)
        reason = None
        if self.max_bad is None:
            reason = looks_wrong(stats.counts) if stats.rows >= FEW_ROWS else None
        else:
            share = 0 < self.max_bad < 1
            most = max(bad.values(), default=0) if share else sum(bad.values())
            if most > (self.max_bad * stats.rows if share else self.max_bad):
                reason = f"{sum(bad.values()):,} bad cells, more than max_bad={self.max_bad:g}"
        if reason is not None:
            raise InputError(
                f"{path} is mostly unreadable: {reason}" if self.max_bad is None else f"{path} has {reason}",
                remedy="fix the reader's options or the file, or allow it with max_bad",
                code="TooManyBadCells",
                path=path,
                bad=bad,
            )


def parse(
    reader: Reader | None = None, *, max_bad: float | None = None, on_error: OnError = "fail_run"
) -> Parse:
    """Read files; without it a preparation begins with `parse()`.

    `reader` is that of `append`. A file that is broken, or has more
    bad cells than `max_bad` (a number, or below 1 a share of its rows), fails:
    with `on_error="skip_key"` it is left out and the others are appended.

    >>> parse(on_error="skip_key").name
    'parse'
    """
    return Parse(reader, max_bad, on_error)


__all__ = ["Step", "load_steps"]


def load_steps(names: Sequence[str], on_error: str = "fail_run") -> list[Step]:
    """Return the steps of these names; `on_error` is what happens to a file that cannot be parsed.

    A name is that of a step, a class of steps, a list of them, or a function
    of a file's path and its table.

    >>> [step.name for step in load_steps(["trueline.dataset.prepare:parse"])]
    ['parse']
    """
    if on_error not in ("fail_run", "skip_key"):
        raise InputError(f"on_error={on_error!r} is not known", remedy="give fail_run or skip_key")
    steps = [step for name in names for step in _steps(name, _loaded(name))]
    if on_error == "skip_key":
        first = steps.pop(0) if steps and isinstance(steps[0], Parse) else parse()
        assert isinstance(first, Parse)
        steps.insert(0, parse(first.reader, max_bad=first.max_bad, on_error="skip_key"))
    return steps


def _loaded(name: str) -> Any:
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise InputError(f"{name!r} does not name a step", remedy="write module:name", code="NoSuchStep")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"there is no step {name}: {error}",
            remedy="is the module in this folder, or installed?",
            code="NoSuchStep",
        ) from None
    finally:
        sys.path.remove(here)
    return found


def _steps(name: str, found: Any) -> Iterator[Step]:
    if isinstance(found, Step):
        yield found
    elif isinstance(found, type) and issubclass(found, Step):
        yield found()
    elif isinstance(found, list | tuple):
        for each in found:
            yield from _steps(name, each)
    elif found is parse:
        yield parse()
    elif callable(found):
        yield Step(map=found, name=getattr(found, "__name__", name))
    else:
        raise InputError(
            f"{name} is a {type(found).__name__}, not a step",
            remedy="name a Step, a list of steps, or a function of a path and a table",
            code="NoSuchStep",
        )
