"""One tree of errors: your input, retry, outcome unknown, corruption."""

from __future__ import annotations

from typing import Any


class TruelineError(Exception):
    """Root of every error raised here.

    `code` is stable and may be matched on, `fields` holds the values the
    message was made from (also readable as attributes), and the last line of
    the message says what to do.

    >>> error = DatasetNotFound("no dataset 'trade'", remedy="did you mean 'trades'?", name="trade")
    >>> error.code, error.name
    ('DatasetNotFound', 'trade')
    >>> print(error)
    no dataset 'trade'
      → did you mean 'trades'?
    """

    def __init__(self, problem: str, *, remedy: str = "", code: str = "", **fields: object) -> None:
        self.problem = problem
        self.remedy = remedy
        self.code = code or type(self).__name__
        self.fields = fields
        super().__init__(problem)

    def __str__(self) -> str:
        return f"{self.problem}\n  → {self.remedy}" if self.remedy else self.problem

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.problem, self.remedy, self.code, self.fields))


def _rebuild(
    kind: type[TruelineError], problem: str, remedy: str, code: str, fields: dict[str, object]
) -> TruelineError:
    """Restore an error that crossed a process boundary."""
    return kind(problem, remedy=remedy, code=code, **fields)


class InputError(TruelineError, ValueError):
    """What was asked for cannot be done as asked; nothing was changed."""


class RetryError(TruelineError):
    """Tried and failed; nothing was changed and trying again is safe."""


class OutcomeUnknown(TruelineError):
    """It may or may not have happened; look before trying again."""


class CorruptionError(TruelineError):
    """Stored bytes are not what their names or neighbours say they are."""


# --- your input -------------------------------------------------------------


class NotPortable(InputError, TypeError):
    """A type whose logical hash would not be the same for every reader."""


class UnsupportedVersion(InputError):
    """A format version that is not read here, older or newer."""


class ManifestError(InputError):
    """A YAML or JSON manifest that cannot be understood, with its place."""


class SchemaError(InputError):
    """Data that does not fit the schema it meets."""


class CheckFailed(InputError):
    """Rows that break a condition they are held to; `condition`, `rows` and `first` say which."""


class BrokenFile(InputError):
    """A source file that cannot be read to its end: torn, truncated, or not what it is said to be."""


class ChainError(InputError):
    """A block the chain's rules refuse: `code` is the error's name, `rule` the contract."""

    rule: str


class BadName(InputError):
    """A name that is not allowed for a dataset."""


class DatasetNotFound(InputError, KeyError):
    """No dataset of that name or id in the workspace."""

    __str__ = TruelineError.__str__


class DatasetExists(InputError):
    """A dataset of that name exists with another definition."""


class WorkspaceNotFound(InputError, FileNotFoundError):
    """The folder or address holds no workspace."""

    __str__ = TruelineError.__str__


class ConfigError(InputError):
    """A configuration value that is not known or not valid."""


class EnvironmentMissing(InputError):
    """Something this machine lacks: Java, pyspark, an extra."""


class QueryError(InputError):
    """A query that Spark cannot understand or finish, with the line and column where it fails."""


class CursorShared(InputError, RuntimeError):
    """Two threads moved one cursor at once."""


class ContractBroken(InputError, AssertionError):
    """A component does not keep a contract: `check` names the check, `contracts` what it breaks."""


class FlowError(InputError):
    """A flow that cannot run as written; the message names the nodes and their source lines."""


class NotPromised(FlowError, TypeError):
    """An operator needs what its collection does not promise: bounded, ordered, delivered once."""


class WrongLocation(FlowError, TypeError):
    """Collections, ticks or align points of different places meet in one operator."""


class Unfinished(FlowError):
    """A forward reference or a cycle that nothing completes, or a flow that leads nowhere."""


class SynchronousCycle(FlowError):
    """A node inside a tick that needs its own result of the same execution."""


class NoSharedUpstream(FlowError):
    """Uses of an align point that rest on nothing in common (rule align:A14)."""

    rule = "align:A14"


class SharedOnlyBehindNetwork(FlowError):
    """Uses of an align point that meet only on another machine (rule align:A15)."""

    rule = "align:A15"


class NotAligned(FlowError):
    """A use of an align point that no `aligned_at` of it reaches (rule align:A21)."""

    rule = "align:A21"


class ReentrantAlignment(FlowError):
    """What leaves a use of an align point comes back to one of the same point (rule align:A25)."""

    rule = "align:A25"


class AsyncEdgeInRegion(FlowError):
    """A step that may lag stands between what is shared and a use of the align point (rule align:A26)."""

    rule = "align:A26"


class ElementFailed(FlowError):
    """A function of a flow raised; `node` says which, `value` on what."""


class ClaimBroken(FlowError, AssertionError):
    """A function said to be commutative, or pure, is not: `node` says which, `value` on what."""


class EndlessLoop(FlowError, RuntimeError):
    """A flow that feeds itself without end."""


class SimulationError(FlowError):
    """A test of a flow that cannot be explored soundly; `code` says what is wrong with it."""


class Counterexample(FlowError, AssertionError):
    """A schedule under which a test of a flow fails: `trace` tells it, `choices` is the line to replay."""

    trace: Any
    choices: tuple[int, ...]

    def replay(self) -> None:
        """Run the same schedule again: raises the same counterexample, unless what it shows was mended."""
        self.fields["again"]()  # type: ignore[operator]

    def _repr_html_(self) -> str:
        return str(self.trace._repr_html_())

    def __reduce__(self) -> tuple[Any, ...]:
        kept = {name: value for name, value in self.fields.items() if name != "again"}
        return (_rebuild, (type(self), self.problem, self.remedy, self.code, kept))


class Diverged(InputError):
    """Two copies of a dataset each have blocks the other has not; `common` is the last they share."""


class DestinationAhead(InputError):
    """The copy to be brought up to date has blocks beyond its source."""


# --- retry ------------------------------------------------------------------


class RefCASFailed(RetryError):
    """The head moved while a commit was being prepared (rule chain:C8)."""

    rule = "chain:C8"


class StoreError(RetryError, OSError):
    """The storage refused an operation; what was there before is still there."""

    __str__ = TruelineError.__str__


class OutOfMemory(RetryError, MemoryError):
    """There was no memory for rows on their way; nothing was changed."""


class StorageFull(StoreError):
    """No space left where the dataset is stored."""


class StorageReadOnly(StoreError):
    """The place where the dataset is stored cannot be written to."""


class PullError(RetryError):
    """Some datasets could not be pulled; `report` says which, and what was done for the others."""


class SparkFailed(RetryError):
    """Spark gave up on a job: out of memory, a lost worker or connection, cancelled."""


class RunFailed(RetryError):
    """A step of a run failed on a value that is final; `step`, `key` and `generations` say where."""

    step: int
    key: object
    generations: tuple[int, ...]


class JournalBusy(RetryError):
    """Another run writes the journal that was named."""


class TaskFailed(RetryError):
    """A function raised something unexpected while it worked on one piece; `traceback` says where."""


# --- corruption -------------------------------------------------------------


class MalformedBlock(CorruptionError, ValueError):
    """Bytes that are not a block of the format."""


class HashMismatch(CorruptionError):
    """Content that does not hash to its name (rule chain:C7)."""

    rule = "chain:C7"


class JournalDamaged(CorruptionError):
    """The journal of a run does not hold what was written; `place` is the number of the entry, if it is one."""


class ObjectMissing(CorruptionError, LookupError):
    """An object that something refers to is not in the store."""


class StateMissing(ObjectMissing):
    """A file of a dataset's state is gone; state is a cache and can be rebuilt."""


class HeadMissing(CorruptionError):
    """A dataset that has blocks but no head."""
