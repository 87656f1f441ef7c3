"""What `derive` was asked for: queries and functions, the datasets they read, and where that was written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from trueline.chain.events import SetAttachments, SetInfo, SetTransform, SetVocab, TransformInput
from trueline.check import DatasetCheck, checked
from trueline.dataset.definition import PATH as DOCUMENT
from trueline.dataset.derivation import Derivation
from trueline.errors import InputError, ManifestError
from trueline.flow import NonDet
from trueline.workspace.derive.input_tables import EVENT_KINDS, InputTable, events_named, with_changes
from trueline.workspace.derive.redefine import OnChange
from trueline.workspace.query_guard import unknown_tables
from trueline.workspace.sql import tables_of

if TYPE_CHECKING:
    from trueline.chain.manifest import DatasetSnapshot
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace

_STRATEGIES: Final = ("auto", "incremental")
# How a name of a step is written before its text.
_STEP: Final = "-- step "


@dataclass(frozen=True, slots=True)
class DerivationRequest:
    """What `derive` was asked for."""

    name: str
    sql: str | Mapping[str, str] | Sequence[tuple[str, str]] | None = None
    inputs: Mapping[str, Any] | Sequence[str] | None = None
    key: str | Sequence[str] | None = None
    event_time: str | None = None
    description: str | None = None
    fn: object = None
    checks: Sequence[DatasetCheck] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    strategy: str = "auto"
    on_change: str = "error"
    file: str | None = None
    folder: str | None = None

    @property
    def steps(self) -> tuple[tuple[str, str], ...]:
        """The queries with their names, in order; the last one is the result, whatever its name."""
        if self.sql is None:
            return ()
        if isinstance(self.sql, str):
            return (("", _text(self.sql)),)
        given = self.sql.items() if isinstance(self.sql, Mapping) else self.sql
        return tuple((str(name), _text(text)) for name, text in given)

    @property
    def queries(self) -> tuple[tuple[str, str], ...]:
        """The same as they are run, where `changes('x')` is the name of a table."""
        return tuple((name, with_changes(text)) for name, text in self.steps)

    @property
    def written(self) -> str:
        """The text as it was written, for people and to compare it."""
        steps = self.steps
        return steps[0][1] if len(steps) == 1 else _one_after_another(steps)

    @property
    def recorded_steps(self) -> tuple[tuple[str, str], ...]:
        """The steps where there are several: from the text that has all of them they cannot be told."""
        steps = self.steps
        return steps if len(steps) > 1 else ()

    @property
    def declared_key(self) -> tuple[str, ...] | None:
        """The key that was asked for, None if none was."""
        return None if self.key is None else (self.key,) if isinstance(self.key, str) else tuple(self.key)


@dataclass(frozen=True, slots=True)
class GivenInputs:
    """The datasets by the names they have in the query, and why some are read at a cut of their own."""

    datasets: Mapping[str, Dataset]
    nondet: Mapping[str, str] = field(default_factory=dict)

    @property
    def named(self) -> tuple[TransformInput, ...]:
        """The inputs as a chain records them."""
        return tuple(TransformInput(str(each.id), alias) for alias, each in self.datasets.items())


# --- what was asked for ---------------------------------------------------------------------------


def _text(text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{text!r:.80} is not a query", remedy="write: select …", code="NotAQuery")
    return text.strip().rstrip(";").rstrip()


def check_request(request: DerivationRequest) -> None:
    """Refuse what cannot be meant, before anything is looked at."""
    if (request.sql is None) == (request.fn is None):
        raise InputError(
            "a derived dataset is defined by a query or by a function, and by one of them",
            remedy="give sql=, or fn=",
            code="NoDefinition",
        )
    names = [name for name, _ in request.steps[:-1]]
    if not isinstance(request.sql, str) and request.sql is not None and not request.steps:
        raise InputError("there is no query", remedy="give at least one step", code="NotAQuery")
    if len(set(names)) < len(names) or not all(map(str.isidentifier, names)):
        raise InputError(
            f"the steps are called {', '.join(map(repr, names))}",
            remedy="give every step a name of its own, of letters, digits and _",
            code="BadStep",
        )
    for what, value, known in (
        ("strategy", request.strategy, _STRATEGIES),
        ("on_change", request.on_change, tuple(OnChange)),
    ):
        if value not in known:
            raise InputError(
                f"{what} is {value!r:.80}",
                remedy=f"give one of {', '.join(map(str, known))}",
                code="BadOption",
            )
    if request.fn is not None and request.key is None:
        raise InputError(
            "a function needs a key: what identifies a row of its result cannot be seen from it",
            remedy='give key="id", or several columns',
            code="NoKey",
        )
    checked(request.checks)


def inputs_of(workspace: Workspace, request: DerivationRequest) -> GivenInputs:
    """Return the inputs by the names they have in the query: those it names, or those that were given."""
    given = request.inputs
    reasons: dict[str, str] = {}
    found: dict[str, Dataset] = {}
    if given is None:
        found = _read_by(workspace, request)
    elif isinstance(given, Mapping):
        for alias, said in given.items():
            name, why = _given(alias, said)
            found[alias] = workspace[name]
            if why is not None:
                reasons[alias] = why
    else:
        names: Sequence[str] = (given,) if isinstance(given, str) else given
        found = {name: workspace[name] for name in names}
    if not found:
        raise InputError("the query reads no dataset", remedy="name a dataset after FROM", code="NoInputs")
    ids = [str(each.id) for each in found.values()]
    twice = next((alias for alias, each in found.items() if ids.count(str(each.id)) > 1), None)
    if twice is not None:
        raise InputError(
            f"the dataset {found[twice].name!r} is given as an input twice",
            remedy="give it one name, and use that name as often as you like in the query",
            code="InputTwice",
        )
    return GivenInputs(found, reasons)


def _given(alias: str, said: Any) -> tuple[str, str | None]:
    """Read what an alias stands for: a name, a reason to read it at its own cut, or both."""
    if isinstance(said, NonDet):
        return alias, said.why
    if isinstance(said, tuple) and len(said) == 2 and isinstance(said[1], NonDet):
        return str(said[0]), said[1].why
    return said, None


def _read_by(workspace: Workspace, request: DerivationRequest) -> dict[str, Dataset]:
    """Find the datasets that queries read; a table that is not one is refused with what may be meant."""
    names = list(workspace)
    found: dict[str, Dataset] = {}
    steps: list[str] = []
    for step, text in request.queries:
        events = events_named(text)
        hidden = [*steps, *(InputTable(name, kind).name for name in events for kind in EVENT_KINDS)]
        tables = {table.lower() for table in unknown_tables(text, hidden)}
        found |= {name: workspace[name] for name in events if name not in found}
        for table in tables_of(text, names):
            if table.at is not None:
                raise InputError(
                    f"`{table.name}` reads a dataset as it was: a definition follows its inputs",
                    remedy=f"read {table.dataset!r}; what was there at a commit is in a tag or a copy",
                    code="FixedInput",
                )
            # A column may be called as a dataset is; where sqlglot sees no table, words have to do.
            if table.name.lower() in tables or not (tables or events):
                found.setdefault(table.name, workspace[table.dataset])
        missing = tables - {name.lower() for name in found}
        for unknown in sorted(missing):
            close = get_close_matches(unknown, names, n=1)
            if close:
                raise InputError(
                    f"the query reads `{unknown}`, which is not a dataset",
                    remedy=f"did you mean {close[0]!r}?",
                    code="InputMissing",
                    input=unknown,
                )
        steps.append(step)
    return found


def request_of_manifest(snapshot: DatasetSnapshot) -> DerivationRequest:
    """Read the definition of a derived dataset from a manifest; its document may say key and checks."""
    found = {type(event): event for event in snapshot.events}
    transform, info, vocab = found[SetTransform], found.get(SetInfo), found.get(SetVocab)
    assert isinstance(transform, SetTransform)
    other = sorted(each.KIND for each in set(found) - {SetTransform, SetInfo, SetVocab, SetAttachments})
    if other:
        raise ManifestError(
            f"{other[0]} cannot be part of a derived dataset: its query says what it holds",
            remedy="leave it out",
        )
    for what in _without_place(transform, info, vocab, found.get(SetAttachments)):
        raise ManifestError(
            f"{what} cannot be part of a dataset that is derived here", remedy="leave it out of the manifest"
        )
    said: dict[str, Any] = {}
    attachments = found.get(SetAttachments)
    if isinstance(attachments, SetAttachments):
        texts = {item.path: item.content for item in attachments.attachments.items}
        try:
            said = json.loads(texts.get(DOCUMENT, "{}"))
        except ValueError:
            raise ManifestError(f"the attachment {DOCUMENT} is not JSON", remedy="write JSON") from None
    sql = transform.transform
    steps = [(step.alias or "", step.query) for step in sql.queries or ()]
    return DerivationRequest(
        snapshot.name,
        sql.query if sql.query is not None else steps,
        {source.alias or source.dataset_ref: source.dataset_ref for source in transform.inputs} or None,
        said.get("key") or None,
        vocab.event_time_column if isinstance(vocab, SetVocab) else None,
        info.description if isinstance(info, SetInfo) else None,
        None,
        tuple(map(DatasetCheck.of, said.get("checks", ()))),
        said.get("columns", {}),
    )


def _without_place(transform: SetTransform, info: Any, vocab: Any, attachments: Any) -> Iterator[str]:
    """Yield what a manifest says that a definition has no place for: nothing is lost without a word."""
    if transform.transform.temporal_tables:
        yield "a temporal table"
    if info is not None and info.keywords:
        yield "SetInfo.keywords"
    if vocab is not None and vocab != SetVocab(event_time_column=vocab.event_time_column):
        yield "another name of a system column"
    items = attachments.attachments.items if attachments is not None else ()
    yield from (f"the attachment {item.path}" for item in items if item.path != DOCUMENT)


def steps_of(derivation: Derivation) -> str | list[tuple[str, str]]:
    """Return the queries as they were written, one by one."""
    names = [step.alias or "" for step in derivation.queries[:-1]]
    if not names:
        return derivation.written
    if derivation.steps and _one_after_another(derivation.steps) == derivation.written:
        return list(derivation.steps)
    # Recorded before steps were: a comment in one of them may look as a name does.
    lines, steps = derivation.written.splitlines(), list[tuple[str, list[str]]]()
    if not lines or not lines[0].startswith(_STEP):
        return [(step.alias or "", step.query) for step in derivation.queries]
    for line in lines:
        at = len(steps)
        is_start = line.startswith(_STEP) and (at >= len(names) or line == f"{_STEP}{names[at]}")
        if is_start and at <= len(names):
            steps.append((line.removeprefix(_STEP), []))
        else:
            steps[-1][1].append(line)
    return [(name, "\n".join(text)) for name, text in steps]


def _one_after_another(steps: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"{_STEP}{name}\n{text}" for name, text in steps)
