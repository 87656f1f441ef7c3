"""Defining a derived dataset: what is asked for is checked by sqlglot and by Spark, and recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from trueline.chain.schema import hidden
from trueline.check import DatasetCheck, checked
from trueline.dataset.append.intake import whole_schema
from trueline.dataset.definition import vocabulary
from trueline.dataset.derivation import COPY, Derivation, FunctionOf, KeyKind, derivation_at, described
from trueline.errors import InputError, SchemaError
from trueline.flow import NonDet, nondet
from trueline.workspace.creation import CreationPlan, make
from trueline.workspace.derive.checks import check_definition
from trueline.workspace.derive.evaluate import QuerySession, query_session
from trueline.workspace.derive.function import allow, function_of, result_of_function
from trueline.workspace.derive.output_keys import key_of
from trueline.workspace.derive.redefine import OnChange, redefine, refuse_cycle, replacements
from trueline.workspace.derive.reproducible import check_reproducible
from trueline.workspace.derive.strategies import with_strategy
from trueline.workspace.names import check_name
from trueline.workspace.query_guard import check_query, unknown_tables
from trueline.workspace.sql import tables_of

if TYPE_CHECKING:
    from trueline.chain.datatypes import DataSchema
    from trueline.chain.events import TransformInput
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
    def written(self) -> str:
        """The text as it was written, for people and to compare it."""
        steps = self.steps
        if len(steps) == 1:
            return steps[0][1]
        return "\n".join(f"{_STEP}{name}\n{text}" for name, text in steps)

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
        from trueline.chain.events import TransformInput

        return tuple(TransformInput(str(each.id), alias) for alias, each in self.datasets.items())


def derive(workspace: Workspace, request: DerivationRequest) -> Dataset:
    """Make a derived dataset; the same definition again returns it, another raises with the difference."""
    check_name(request.name)
    _check_request(request)
    function = None if request.fn is None else function_of(request.fn)
    inputs = inputs_of(workspace, request)
    refuse_cycle(workspace, request.name, inputs.datasets)
    there = _same(workspace, request, inputs, function)
    if there is not None:
        return _allowing(workspace, there, function)
    derivation, schema = defined(workspace, request, inputs, function)
    if request.name in workspace:
        change = OnChange(request.on_change)
        made = redefine(workspace, workspace[request.name], derivation, schema, change)
        return _allowing(workspace, made, function)

    def differences(chain: Any) -> list[str]:
        return derivation.differences(chain, schema)

    plan = CreationPlan(lambda dataset_id, now: derivation.blocks(dataset_id, schema, now), differences)
    return _allowing(workspace, make(workspace, request.name, plan), function)


def derived_again(workspace: Workspace, dataset: Dataset) -> Dataset:
    """Define a dataset again as it was written, from those who now have the names of its inputs."""
    there = derivation_at(dataset._tail)
    assert there is not None
    names, replaced = workspace._names_by_id(), replacements(workspace)
    given: dict[str, Any] = {}
    for each in there.inputs:
        ref, alias = each.dataset_ref, each.alias or ""
        name = replaced.get(ref) or names.get(ref, ref)
        given[alias] = (name, nondet(there.nondet[alias])) if alias in there.nondet else name
    request = DerivationRequest(
        dataset.name,
        None if there.function is not None else _steps_of(there),
        given,
        there.key if there.identity is KeyKind.DECLARED else None,
        there.event_time,
        described(dataset.chain),
        None if there.function is None else there.function.path,
        there.checks,
        there.columns,
        on_change=OnChange.REBUILD,
        file=there.file,
    )
    return derive(workspace, request)


def _steps_of(derivation: Derivation) -> str | list[tuple[str, str]]:
    """Return the queries as they were written, one by one."""
    names = [step.alias or "" for step in derivation.queries[:-1]]
    if not names:
        return derivation.written
    lines, steps = derivation.written.splitlines(), list[tuple[str, list[str]]]()
    for line in lines:
        at = len(steps)
        is_start = line.startswith(_STEP) and (at >= len(names) or line == f"{_STEP}{names[at]}")
        if is_start and at <= len(names):
            steps.append((line.removeprefix(_STEP), []))
        else:
            steps[-1][1].append(line)
    return [(name, "\n".join(text)) for name, text in steps]


def _allowing(workspace: Workspace, dataset: Dataset, function: FunctionOf | None) -> Dataset:
    """Let the function that was named here be called for a dataset."""
    if function is not None:
        allow(workspace, dataset.id, function)
    return dataset


def defined(
    workspace: Workspace, request: DerivationRequest, inputs: GivenInputs, function: FunctionOf | None = None
) -> tuple[Derivation, DataSchema]:
    """Check a definition with Spark; return it and the columns of its result. Nothing is recorded."""
    aliases = list(inputs.datasets)
    earlier: list[str] = []
    for name, text in request.steps:
        check_query(text, [*aliases, *earlier])
        check_reproducible(text)
        earlier.append(name)
    views = {alias: dataset.view() for alias, dataset in inputs.datasets.items()}
    for alias, view in views.items():
        if not view.columns:
            raise SchemaError(
                f"input {alias!r} has no columns yet",
                remedy="append rows to it, or create it with a schema",
                code="InputWithoutSchema",
            )
    # Whoever calls `derive` names the function.
    with query_session(workspace, views, function) as session:
        if function is None:
            derivation, schema = _defined(session, request, inputs.datasets)
            derivation = with_strategy(derivation, inputs.datasets, session)
        else:
            derivation, schema = _defined_by_function(session, request, function)
    derivation = replace(
        derivation.over(inputs.named),
        written=request.written if function is None else function.path,
        nondet=inputs.nondet,
        checks=checked(request.checks),
        columns=dict(request.columns),
        file=request.file,
    )
    _check_columns(derivation, schema)
    check_definition(workspace, derivation.checks, schema)
    if request.strategy == "incremental" and derivation.strategy == "recompute":
        raise InputError(
            f"{request.name!r} can only be recomputed: {derivation.reason}",
            remedy='leave out strategy="incremental": it is then recomputed and the difference recorded',
            code="NotIncremental",
            reason=derivation.reason,
        )
    return derivation, schema


def _same(
    workspace: Workspace, request: DerivationRequest, inputs: GivenInputs, function: FunctionOf | None
) -> Dataset | None:
    """Return the dataset if it has this definition: that is seen without Spark."""
    if request.name not in workspace or request.on_change != "error":
        return None
    dataset = workspace[request.name]
    if derivation_at(dataset._tail) is None:
        return None
    return None if same_as_there(workspace, request, inputs, function) else dataset


def same_as_there(
    workspace: Workspace, request: DerivationRequest, inputs: GivenInputs, function: FunctionOf | None = None
) -> list[str]:
    """Say how an existing dataset differs from what is asked for, as far as that is seen without Spark."""
    dataset = workspace[request.name]
    there = derivation_at(dataset._tail)
    if there is None:
        return ["kind: it is not derived here"]
    key, identity = there.key, there.identity
    if request.declared_key is not None:
        key, identity = request.declared_key, KeyKind.DECLARED
    elif identity is KeyKind.DECLARED:
        key, identity = (), KeyKind.BAG
    asked = replace(
        there,
        written=request.written if function is None else function.path,
        inputs=inputs.named,
        nondet=inputs.nondet,
        key=key,
        identity=identity,
        event_time=request.event_time,
        checks=checked(request.checks),
        columns=dict(request.columns),
        description=request.description,
        function=function,
    )
    return asked.differences(dataset.chain)


# --- what was asked for ---------------------------------------------------------------------------


def _text(text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{text!r:.80} is not a query", remedy="write: select …", code="NotAQuery")
    return text.strip().rstrip(";").rstrip()


def _check_request(request: DerivationRequest) -> None:
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
    for step, text in request.steps:
        tables = {table.lower() for table in unknown_tables(text, steps)}
        for table in tables_of(text, names):
            if table.at is not None:
                raise InputError(
                    f"`{table.name}` reads a dataset as it was: a definition follows its inputs",
                    remedy=f"read {table.dataset!r}; what was there at a commit is in a tag or a copy",
                    code="FixedInput",
                )
            # A column may be called as a dataset is; where sqlglot sees no table, words have to do.
            if table.name.lower() in tables or not tables:
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


def _check_columns(derivation: Derivation, schema: DataSchema) -> None:
    """Refuse descriptions of columns that the result does not have."""
    for name, text in derivation.columns.items():
        if name not in schema.names:
            close = get_close_matches(name, schema.names, n=1)
            shown = ", ".join(schema.names[4:])
            raise SchemaError(
                f"column {name!r} is described, and the result has no such column",
                remedy=f"did you mean {close[0]!r}?" if close else f"the columns are {shown}",
                column=name,
            )
        if not isinstance(text, str):
            raise InputError(f"the description of column {name!r} is not text", remedy="give text")


# --- by query -------------------------------------------------------------------------------------


def _defined(
    session: QuerySession, request: DerivationRequest, inputs: Mapping[str, Dataset]
) -> tuple[Derivation, DataSchema]:
    """Have queries judged; return the definition without its inputs, and the columns of the result."""
    from trueline.chain.sources import SqlQueryStep
    from trueline.workspace.derive.judge import judged_steps

    keys = {alias: key for alias, dataset in inputs.items() if (key := key_of(dataset))}
    *steps, last = judged_steps(session, request.steps, keys)
    if request.declared_key is not None:
        columns = list(session.types(last.canonical))
        check_key(request.declared_key, columns)
        last = last.with_key(request.declared_key, columns)
    names = [name for name, _ in request.steps]
    queries = [
        SqlQueryStep(alias=name, query=step.expanded) for name, step in zip(names, steps, strict=False)
    ]
    derivation = Derivation(
        (*queries, SqlQueryStep(query=last.expanded)),
        (),
        last.key,
        last.key_kind,
        request.written,
        reason=next((each.opaque_reason for each in (*steps, last) if each.opaque_reason), ""),
        event_time=request.event_time,
        description=request.description,
        canonical=tuple(each.canonical for each in (*steps, last)),
    )
    return derivation, _schema(session.result(derivation), derivation)


def check_key(key: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse a key with columns that the result does not have."""
    if not key:
        raise InputError("the key has no columns", remedy="name a column of the result", code="NoKey")
    for name in key:
        if name not in columns:
            close = get_close_matches(name, columns, n=1)
            raise SchemaError(
                f"the key has a column {name!r}, the result has {', '.join(columns)}",
                remedy=f"did you mean {close[0]!r}?" if close else "name columns of the result",
                code="MissingKeyColumn",
                column=name,
            )


def _schema(frame: Any, derivation: Derivation) -> DataSchema:
    """Return the columns of a result; all may be null, so that later definitions may add and drop values."""
    import pyarrow as pa

    from trueline.spark.types import arrow_schema_of

    arrow = arrow_schema_of(frame.schema)
    nullable = pa.schema([each.with_nullable(True) for each in arrow], arrow.metadata)
    schema = whole_schema(nullable, vocabulary(derivation.event_time))
    fields = tuple(hidden(each, True) if each.name == COPY else each for each in schema.fields)
    return type(schema)(fields)


# --- by function ----------------------------------------------------------------------------------


def _defined_by_function(
    session: QuerySession, request: DerivationRequest, function: FunctionOf
) -> tuple[Derivation, DataSchema]:
    """Call a function over frames without running them: the columns of its result are checked."""
    key = request.declared_key
    assert key is not None
    derivation = Derivation(
        (function.step,),
        (),
        key,
        KeyKind.DECLARED,
        function.path,
        reason="function",
        event_time=request.event_time,
        description=request.description,
        function=function,
    )
    frame = result_of_function(session, derivation)
    check_key(key, frame.columns)
    return derivation, _schema(frame, derivation)
