"""Writing to a dataset by `format("trueline")`: tasks stage the rows, one commit adds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from trueline.chain.block import check_key
from trueline.dataset.append.append import as_instant
from trueline.dataset.append.lacking import ALLOW_EMPTY
from trueline.dataset.append.new_columns import ALLOWED, checked_policy
from trueline.dataset.append.staged import StagedPart, StagedRows, StagePartition
from trueline.dataset.definition import addendum_at, check_appendable, merge_of, strategy_of
from trueline.errors import InputError, TruelineError
from trueline.merge import Snapshot
from trueline.spark.errors import carrying
from trueline.spark.options import absolute, bad_option, flag, opened, parsed, store_options
from trueline.spark.results import decode, encode, unreadable
from trueline.spark.sink import key_of_batch
from trueline.spark.types import arrow_schema_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from trueline.workspace.dataset import Dataset

_LABEL: Final = "writing to the dataset"
# What `Dataset.append` takes, by the name of the option.
_APPEND: Final = {
    "idempotencyKey": "idempotency_key",
    "watermark": "watermark",
    "newColumns": "new_columns",
    "allowEmpty": "allow_empty",
}
# What remedies of `append` name, and the option that says it here.
_WORDS: Final = {
    ALLOWED: '.option("newColumns", "add") adds them, "ignore" leaves them out',
    ALLOW_EMPTY: '.option("allowEmpty", "true")',
}
# A stream is known by its name; the others are Spark's own, which passes on all that it was given.
_STREAM: Final = ("name", "checkpointLocation", "queryName")
OPTIONS: Final = frozenset(name.lower() for name in (*_APPEND, *_STREAM))


@dataclass(frozen=True)
class Target:
    """The options of a write, parsed: which dataset, and what `append` is asked to do with the rows.

    `store` is what the provider of an object store needs; it goes to the tasks and is never shown.
    """

    workspace: str
    dataset: str
    name: str | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)  # what `append` takes beside the rows
    store: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, options: Mapping[str, str], *, stream: bool) -> Target:
        """Parse options, or raise naming the one that is not valid."""
        given = parsed(options, (*_APPEND, *_STREAM) if stream else tuple(_APPEND))
        asked: dict[str, Any] = {
            word: given[name.lower()] for name, word in _APPEND.items() if name.lower() in given
        }
        name = given.get("name")
        if stream:
            if name is None:
                raise bad_option(
                    "a stream needs the option 'name': Spark does not say which query a batch belongs to",
                    'add .option("name", …), another one for every checkpoint',
                )
            if "idempotency_key" in asked:
                raise bad_option(
                    "a stream cannot have the option 'idempotencyKey': every batch has a key of its own",
                    "leave it out; the keys are made of the option 'name'",
                )
            key_of_batch(name, 0)
        check_key(asked.get("idempotency_key"))
        checked_policy(asked.get("new_columns"))
        if "watermark" in asked:
            as_instant(asked["watermark"])
        asked["allow_empty"] = flag(given, "allowEmpty")
        return cls(absolute(given["workspace"]), given["dataset"], name, asked, store_options(given))

    def opened(self) -> AbstractContextManager[Dataset]:
        """Open the dataset."""
        return opened(self.workspace, self.dataset, self.store)

    def staging(self, schema: pa.Schema, *, overwrite: bool) -> StagePartition:
        """Return what tasks do with their rows, or say why these rows cannot be added in this way."""
        with self.opened() as dataset:
            _ = dataset.head  # says what is wrong with a dataset that has lost it
            tail = dataset.chain.tail()
            assert tail is not None
            check_appendable(self.dataset, tail)
            is_snapshot = isinstance(strategy_of(tail), Snapshot)
            if overwrite and not is_snapshot:
                raise _kept(self.dataset, merge_of(tail) or "append", stream=self.name is not None)
            if is_snapshot and not overwrite and self.name is not None:
                raise InputError(
                    f"{self.dataset} merges snapshots, and a batch of a stream is not all of its rows",
                    remedy='send all rows in every batch, with .outputMode("complete"), '
                    "or write to a dataset with another merge",
                    code="SnapshotStream",
                )
            new = self.asked.get("new_columns") or addendum_at(tail).new_columns or "error"
            return StagePartition.of(dataset.chain.store, schema, tail, new)

    def commit(self, rows: StagedRows, **more: Any) -> None:
        """Add rows as one commit, then remove what was staged."""
        with self.opened() as dataset:
            dataset.append(rows, **self.asked, **more)
            rows.discard(dataset.chain.store)

    def discard(self, rows: StagedRows) -> None:
        """Remove what was staged."""
        with self.opened() as dataset:
            rows.discard(dataset.chain.store)


def _kept(name: str, merge: str, *, stream: bool) -> InputError:
    mode = 'outputMode("complete")' if stream else 'mode("overwrite")'
    instead = 'outputMode("append")' if stream else 'mode("append")'
    return InputError(
        f"{mode} replaces all rows, and {name} merges by {merge}, which keeps them",
        remedy=f"use .{instead}, or write to a dataset created with merge=trueline.merge.snapshot(…)",
        code="NotOverwritten",
        merge=merge,
    )


@contextmanager
def writing(nonce: str) -> Iterator[None]:
    """Send errors of a write to the driver, with remedies that name options of a write."""
    with carrying(nonce, _LABEL):
        try:
            yield
        except TruelineError as error:
            for words, option in _WORDS.items():
                error.remedy = error.remedy.replace(words, option)
            raise


@dataclass
class Message(WriterCommitMessage):
    """What a task answers: a `StagedPart` as data. Spark packs and unpacks what is around it."""

    answer: bytes


class _Writer:
    """What a writer of a frame and one of a stream have in common."""

    def __init__(self, target: Target, schema: StructType, overwrite: bool, nonce: str) -> None:
        self.nonce = nonce
        self.target = target
        self.schema = arrow_schema_of(schema)
        self.stage: Callable[..., StagedPart] = target.staging(self.schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """Stage a partition, in its task."""
        from pyspark import TaskContext

        with writing(self.nonce):
            context = TaskContext.get()
            assert context is not None
            return Message(encode(self.stage(context.partitionId(), iterator)))

    def rows(self, messages: list[WriterCommitMessage | None], *, all_of_them: bool) -> StagedRows:
        """Return what the messages of tasks say was staged; tasks that failed have left none."""
        parts: list[StagedPart] = []
        for message in messages:
            part = decode(message.answer) if isinstance(message, Message) else None
            if isinstance(part, StagedPart):
                parts.append(part)
            elif message is not None or all_of_them:
                raise unreadable(f"{message!r:.80} does not say what was staged")
        if len({part.head for part in parts}) > 1:
            raise unreadable("the rows were typed for different commits")
        return StagedRows(self.schema, tuple(parts))


class FrameWriter(_Writer, DataSourceArrowWriter):
    """Writes a frame as one commit."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with writing(self.nonce):
            self.target.commit(self.rows(messages, all_of_them=True))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with writing(self.nonce):
            self.target.discard(self.rows(messages, all_of_them=False))


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes each batch of a stream as one commit, once: a batch that is sent again finds its commit.

    Spark makes one for the tasks of a batch and another to commit it.
    """

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        with writing(self.nonce):
            key = key_of_batch(self.target.name or "", batchId)
            self.target.commit(self.rows(messages, all_of_them=True), idempotency_key=key)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        del batchId
        with writing(self.nonce):
            self.target.discard(self.rows(messages, all_of_them=False))
