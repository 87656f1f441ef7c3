"""Errors of what was asked for: nothing was changed."""

from __future__ import annotations

from trueline.errors.tree import InputError, TruelineError


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


class Diverged(InputError):
    """Two copies of a dataset each have blocks that the other lacks; `common` is the last they share.

    Also of a derived dataset that has read a block which is not on its input's branch any more: `dataset`,
    `source` and `block` say which.
    """


class NoCommonCut(InputError):
    """Datasets that were never at one state of their inputs; `dataset` and `source` say where it fails."""


class NothingShared(InputError):
    """Datasets that were to be read together and rest on nothing common; `groups` are those that do."""


class CannotCompare(InputError):
    """Copies of derived datasets whose common input is not here, so that it is not known if they agree."""


class CutGone(InputError):
    """A cut or snapshot whose records are not there any more: a reset has cut them off, `gc` removed them."""


class DestinationAhead(InputError):
    """The copy to be brought up to date has blocks beyond its source."""


class SourceNotConfirmed(InputError):
    """A source that somebody else declared and that was not confirmed here; `name` and `source` say which."""


class InputReset(InputError):
    """An input of a derived dataset was reset or replaced: the block it was `taken` at is not there `now`."""
