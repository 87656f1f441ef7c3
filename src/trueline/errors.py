"""One tree of errors: your input, retry, outcome unknown, corruption."""

from __future__ import annotations

import errno
from typing import Any, Final

from trueline.credentials import masked_text

__all__ = [
    "AsyncEdgeInRegion",
    "BadCellsWarning",
    "BadName",
    "BrokenFile",
    "ChainError",
    "CheckFailed",
    "ClaimBroken",
    "ConfigError",
    "ContractBroken",
    "CorruptionError",
    "Counterexample",
    "CursorShared",
    "DataWarning",
    "DatasetExists",
    "DatasetNotFound",
    "DestinationAhead",
    "Diverged",
    "ElementFailed",
    "EndlessLoop",
    "EnvironmentMissing",
    "FlowError",
    "HashMismatch",
    "HeadMissing",
    "InputError",
    "IrreproducibleQuery",
    "JournalBusy",
    "JournalDamaged",
    "LimitExceeded",
    "LinkRefused",
    "MalformedBlock",
    "ManifestError",
    "NoSharedUpstream",
    "NotAligned",
    "NotPortable",
    "NotPromised",
    "ObjectMissing",
    "OutOfMemory",
    "OutcomeUnknown",
    "PullError",
    "QueryError",
    "ReentrantAlignment",
    "RefCASFailed",
    "RetryError",
    "RolledBack",
    "RunFailed",
    "SchemaError",
    "SettingNotConfirmed",
    "SharedOnlyBehindNetwork",
    "SimulationError",
    "SourceNotConfirmed",
    "SparkFailed",
    "StateMissing",
    "StorageFull",
    "StorageReadOnly",
    "StoreError",
    "SynchronousCycle",
    "TaskFailed",
    "TruelineError",
    "Unfinished",
    "UnknownOperation",
    "UnsafeQuery",
    "UnsafeWorkspace",
    "UnsupportedVersion",
    "WorkspaceNotFound",
    "WrongLocation",
    "check_memory",
    "visible",
]

# Control characters, and those that turn the direction of text or hide in it: shown, never obeyed.
HIDDEN: Final = (
    *range(0x20),
    *range(0x7F, 0xA0),
    0x061C,
    0x200B,
    # Not 0x200C and 0x200D, which join the parts of one picture, and of letters in some scripts.
    *range(0x200E, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    0xFEFF,
    *range(0xD800, 0xE000),
)
_SHOWN: Final = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in HIDDEN}
# Fields that hold a name from outside; where the message repeats one it stays on its line.
_NAMES: Final = ("path", "name", "column", "url", "location", "source", "file", "dataset")
_SHOWN_IN_LINES: Final = {code: text for code, text in _SHOWN.items() if code not in (9, 10)}


def visible(text: str, *, lines: bool = True) -> str:
    r"""Return text that is harmless to show; without `lines` it stays on one line.

    >>> visible("a\x1b[31mb\u202ec"), visible("a\nb", lines=False)
    ('a\\x1b[31mb\\u202ec', 'a\\x0ab')
    """
    return text.translate(_SHOWN_IN_LINES if lines else _SHOWN)


class TruelineError(Exception):
    """Root of every error raised here.

    `code` is stable and may be matched on, `fields` holds the values the
    message was made from (also readable as attributes), and the last line of
    the message says what to do. Credentials of addresses are masked in all of
    them, control characters are shown as escapes in the message.

    >>> error = DatasetNotFound("no dataset 'trade'", remedy="did you mean 'trades'?", name="trade")
    >>> error.code, error.name
    ('DatasetNotFound', 'trade')
    >>> print(error)
    no dataset 'trade'
      → did you mean 'trades'?
    """

    def __init__(self, problem: str, *, remedy: str = "", code: str = "", **fields: object) -> None:
        for name in _NAMES:
            given = fields.get(name)
            if isinstance(given, str) and ("\n" in given or "\r" in given):
                problem = problem.replace(given, visible(given, lines=False))
        self.problem = masked_text(problem)
        self.remedy = masked_text(remedy)
        self.code = code or type(self).__name__
        self.fields = {
            name: masked_text(value) if isinstance(value, str) else value for name, value in fields.items()
        }
        super().__init__(self.problem)

    def __str__(self) -> str:
        return visible(f"{self.problem}\n  → {self.remedy}" if self.remedy else self.problem)

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


class DataWarning(UserWarning):
    """Rows were appended, and something about them is to be looked at."""


class BadCellsWarning(DataWarning):
    """Cells of appended files could not be read and are null; once per commit."""


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
    """A YAML or JSON manifest that cannot be read, with its place."""


class SchemaError(InputError):
    """Data that does not fit the schema."""


class CheckFailed(InputError):
    """Rows that break a condition they must meet; `condition`, `rows` and `first` say which."""


class BrokenFile(InputError):
    """A source file that cannot be read to its end: torn, truncated, or not what it is said to be."""


class LimitExceeded(InputError):
    """A file that would take more memory than is allowed: `limit` names the setting, `allowed` its value."""


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


class SettingNotConfirmed(ConfigError):
    """A workspace's own file proposes a setting that only its user may decide; nothing was used of it."""


class UnsafeWorkspace(InputError):
    """A workspace that was found by looking upwards, and belongs to another user."""


class EnvironmentMissing(InputError):
    """Something this machine lacks: Java, pyspark, an extra."""


class QueryError(InputError):
    """A query that Spark cannot understand or finish, with the line and column where it fails."""


class UnsafeQuery(QueryError):
    """A query that may run programs, call Java, or read what is not a dataset; `construct` says by what."""


class IrreproducibleQuery(QueryError):
    """A query whose answer is not a function of its inputs; `construct` says by what."""


class UnknownOperation(InputError, AttributeError, TypeError):
    """A name of another library that is spelled differently here."""


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
    """A forward reference or a cycle that is not completed, or is completed twice."""


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
    """A step that may lag is between what is shared and a use of the align point (rule align:A26)."""

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
    """A schedule under which a test of a flow fails: `trace` describes it, `choices` replays it."""

    trace: Any
    choices: tuple[int, ...]

    def replay(self) -> None:
        """Run the same schedule again: raises the same counterexample, unless what it shows was fixed."""
        self.fields["again"]()  # type: ignore[operator]

    def _repr_html_(self) -> str:
        return str(self.trace._repr_html_())

    def __reduce__(self) -> tuple[Any, ...]:
        kept = {name: value for name, value in self.fields.items() if name != "again"}
        return (_rebuild, (type(self), self.problem, self.remedy, self.code, kept))


class Diverged(InputError):
    """Two copies of a dataset each have blocks that the other lacks; `common` is the last they share."""


class DestinationAhead(InputError):
    """The copy to be brought up to date has blocks beyond its source."""


class SourceNotConfirmed(InputError):
    """A source that somebody else declared and that was not confirmed here; `name` and `source` say which."""


# --- retry ------------------------------------------------------------------


class RefCASFailed(RetryError):
    """The head moved while a commit was being prepared (rule chain:C8)."""

    rule = "chain:C8"


class StoreError(RetryError, OSError):
    """The storage refused an operation; what was there before is still there."""

    __str__ = TruelineError.__str__


class OutOfMemory(RetryError, MemoryError):
    """Memory ran out; nothing was changed, and the data is not to blame."""

    __str__ = TruelineError.__str__


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


# What Arrow's allocator says where a library between it and us made an OSError of it.
_NO_MEMORY = ("malloc of size", "realloc of size", "std::bad_alloc")


def check_memory(error: BaseException, doing: str) -> None:
    """Raise `OutOfMemory` if that is what an error is, whatever class it has; call it before blaming data.

    >>> check_memory(ValueError("not a number"), "reading the file")
    >>> check_memory(MemoryError(), "reading the file")
    Traceback (most recent call last):
    trueline.errors.OutOfMemory: out of memory while reading the file
      → give this process more memory, or read or append less at a time
    """
    if isinstance(error, OutOfMemory):
        raise error
    refused = isinstance(error, OSError) and (
        error.errno == errno.ENOMEM or any(words in str(error) for words in _NO_MEMORY)
    )
    if isinstance(error, MemoryError) or refused:
        said = str(error).splitlines()[0][:200] if str(error) else ""
        raise OutOfMemory(
            f"out of memory while {doing}" + (f": {said}" if said else ""),
            remedy="give this process more memory, or read or append less at a time",
        ) from error


# --- corruption -------------------------------------------------------------


class MalformedBlock(CorruptionError, ValueError):
    """Bytes that are not a block of the format."""


class HashMismatch(CorruptionError):
    """Content that does not hash to its name (rule chain:C7)."""

    rule = "chain:C7"


class LinkRefused(CorruptionError):
    """A link, pipe or device in the place of a folder or file of a workspace; it is not followed."""


class CatalogueDamaged(CorruptionError):
    """The catalogue of a workspace's names is not what was written; `path` says where it is."""


class JournalDamaged(CorruptionError):
    """The journal of a run does not hold what was written; `place` is the number of the entry, if any."""


class ObjectMissing(CorruptionError, LookupError):
    """An object that something refers to is not in the store."""


class StateMissing(ObjectMissing):
    """A file of a dataset's state is gone; state is a cache and can be rebuilt."""


class HeadMissing(CorruptionError):
    """A dataset that has blocks but no head."""


class RolledBack(CorruptionError):
    """A head that went back, or leads to another dataset: a newer `seen` one is not in its past."""
