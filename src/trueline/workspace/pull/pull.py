"""Pulling: read what is new in the declared sources of datasets, bring clones up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from trueline.chain.events import AddData, SetPollingSource, SourceState
from trueline.chain.head_state import Tail
from trueline.chain.instant import Instant
from trueline.chain.sources import (
    CompressionFormat,
    Decompress,
    FetchFilesGlob,
    FetchUrl,
    ReadCsv,
    ReadNdJson,
    ReadParquet,
)
from trueline.chain.text import to_dict
from trueline.credentials import masked
from trueline.dataset.append.files import TakenFile
from trueline.dataset.append.intake import AppendRequest, Polled
from trueline.dataset.append.new_columns import NewColumns
from trueline.dataset.commit import Commit
from trueline.dataset.declared_source import is_one_file, matching, placed, shown, to_read
from trueline.dataset.definition import SOURCE, Addendum, addendum_of, strategy_of
from trueline.errors import InputError, PullError, TruelineError
from trueline.kernel.tasks import failure
from trueline.merge import Snapshot
from trueline.readers import CsvReader, JsonReader, ParquetReader, Reader, Source
from trueline.workspace.dependencies import Dependencies
from trueline.workspace.derive.follow import input_missing
from trueline.workspace.derive.redefine import in_force
from trueline.workspace.http import MAX_BYTES, HttpLimits
from trueline.workspace.locations import folder_of
from trueline.workspace.pull.bad_files import BadFile, BadFiles, bad_files_path
from trueline.workspace.pull.confirm import is_ours, not_confirmed
from trueline.workspace.pull.derived import pull_derived
from trueline.workspace.pull.fetch import fetch
from trueline.workspace.pull.late import late_snapshots, too_late
from trueline.workspace.pull.report import Pulled, PullReport
from trueline.workspace.pull.scheduler import go_on, pulled_together
from trueline.workspace.pull.seen import Seen, seen_path, signs_of
from trueline.workspace.transfer.clone import update
from trueline.workspace.transfer.origin import origin_of

if TYPE_CHECKING:
    from trueline.run import Observer
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace

# A commit lists its files; of so many the list has about 250 kB.
FILES_OF_A_COMMIT: Final = 1000


def pull(
    workspace: Workspace,
    names: Sequence[str],
    *,
    full_refresh: bool = False,
    resend: bool = False,
    allow_empty: bool = False,
    workers: int = 8,
    observers: Sequence[Observer] = (),
    new_columns: NewColumns | None = None,
) -> PullReport:
    """Pull what is named and all it rests on, at one time of the clock; what fails is reported at the end.

    Sources and clones first, then one cut, then derived datasets exactly to it. A source that fails keeps
    its place, and what rests on it follows the others.
    """
    known = Dependencies.of(workspace)
    chosen = known.named(names) if names else in_force(workspace, known)
    wanted = {each for name in chosen for each in (name, *known.upstream(name))}
    moment = (workspace.clock or Instant.now)()

    def pull_one(dataset: Dataset) -> Pulled:
        named = bool(names) and dataset.name in chosen
        terms = _Terms(resend, lambda: moment, named, allow_empty, new_columns)
        return _pulled(workspace, dataset, terms)

    sources = [known[name].dataset for name in sorted(wanted) if not known[name].is_computed]
    done = pulled_together(sources, pull_one, workers=workers, observers=observers)
    shown = [each for each in done if _is_shown(each, chosen if names else ())]
    pulled = [_without_inputs(each, known) for each in shown]
    # A clone may have brought a new definition, and whoever waits for nobody is as it was.
    derived = pull_derived(
        workspace,
        known,
        [name for name in known.in_order(wanted) if known[name].is_computed],
        workers=workers,
        clock=lambda: moment,
        full_refresh=full_refresh,
    )
    return report_of(_merged(pulled, derived))


def report_of(pulled: Sequence[Pulled]) -> PullReport:
    """Return the report; where something went wrong it is raised with it."""
    report = PullReport(tuple(pulled))
    if report.errors:
        raise _not_all(report)
    return report


def _merged(pulled: Sequence[Pulled], derived: Sequence[Pulled]) -> list[Pulled]:
    """Join what was done for sources and for derived datasets; among these are roots that are damaged."""
    damaged = {each.dataset: each for each in derived if not each.is_derived}
    first = [
        replace(each, error=each.error or damaged[each.dataset].error) if each.dataset in damaged else each
        for each in pulled
    ]
    known = {each.dataset for each in first}
    return first + [each for each in derived if each.dataset not in known]


def _is_shown(each: Pulled, named: Sequence[str]) -> bool:
    """Say whether a root is spoken of: those that were named, have a source, or failed."""
    return each.dataset in named or each.source is not None or each.error is not None


def _without_inputs(each: Pulled, known: Dependencies) -> Pulled:
    """Say of a derived dataset that was named why nobody here can bring it further."""
    node = known[each.dataset]
    if not node.missing or each.error is not None:
        return each
    return replace(each, error=input_missing("", node.missing[0]))


@dataclass(frozen=True, slots=True)
class _Terms:
    """On what terms a pull reads: whether known names may come again and new columns, the one time it stamps.

    A dataset that was not `named` is passed over, and reported, where its source is not confirmed.
    With `allow_empty` a snapshot without rows retracts all there are.
    """

    resend: bool
    clock: Callable[[], Instant]
    named: bool = True
    allow_empty: bool = False
    new_columns: NewColumns | None = None


def _not_all(report: PullReport) -> PullError:
    failed = report.errors
    lines = [f"    {name}: {error.problem}\n      → {error.remedy}" for name, error in failed.items()]
    waiting = [each.dataset for each in report if each.waits_for]
    rest = f"\n    not pulled, since they rest on these: {', '.join(waiting)}" if waiting else ""
    return PullError(
        f"{len(failed)} of {len(report)} dataset{'s' * (len(report) != 1)} could not be pulled\n"
        + "\n".join(lines)
        + rest,
        remedy="fix the causes and pull again: what was read is kept and is not read twice",
        report=report,
    )


def _pulled(workspace: Workspace, dataset: Dataset, terms: _Terms) -> Pulled:
    """Pull one dataset; whatever goes wrong there stays there."""
    source: str | None = None
    commits: list[Commit] = []
    bad_files: dict[str, str] = {}
    try:
        origin = origin_of(workspace._location, dataset._folder)
        if origin is not None:
            source = origin.url
            return Pulled(dataset.name, source, blocks=update(dataset).blocks)
        _ = dataset.head
        tail = dataset.chain.tail()
        if tail is None or tail.polling is None:
            return Pulled(dataset.name)
        source = shown(tail.polling.fetch)
        if not is_ours(workspace._location, tail.dataset_id, tail.polling):
            refused = not_confirmed(dataset.name, tail.polling)
            done = Pulled(dataset.name, source)
            return replace(done, error=refused) if terms.named else replace(done, refused=refused)
        skipped: list[str] = []
        twins: dict[str, str] = {}
        for found in _read(workspace, dataset, tail, tail.polling, terms):
            if isinstance(found, BadFile):
                bad_files[found.path] = found.reason
                continue
            skipped += found.skipped if isinstance(found, Commit) else (found,)
            if isinstance(found, Commit):
                twins |= found.duplicates
                if found.blocks:
                    commits.append(found)
            go_on()
        duplicates = _within(twins, commits)
        return Pulled(dataset.name, source, tuple(commits), tuple(skipped), duplicates, bad_files=bad_files)
    except Exception as error:  # noqa: BLE001 (reported in what is raised)
        problem = _of_source(
            failure(error, label=f"pull {dataset.name}", index=0), dataset.name, source or ""
        )
        return Pulled(dataset.name, source, tuple(commits), error=problem, bad_files=bad_files)


def _within(twins: Mapping[str, str], commits: Sequence[Commit]) -> dict[str, str]:
    """Keep those twins of which one was read by this pull; an old one would be named again and again."""
    read = {name for commit in commits for name in commit.files}
    return {name: twin for name, twin in twins.items() if twin in read}


def _of_source(error: TruelineError, name: str, source: str) -> TruelineError:
    """Say what to do where a source or the origin of a clone is read: options of other calls do not help."""
    match error.code:
        case "FileChanged":
            remedy = (
                "if the new content is to be added as well: "
                f"ws.pull({name!r}, resend=True), `trueline pull {name} --resend`"
            )
        case "TooManyBadCells":
            remedy = (
                f"fix the files, or allow it: ws.create({name!r}, …, source=trueline.source(…, "
                f"max_bad={sum(error.fields['bad'].values())}), on_change='from_here')"  # type: ignore[attr-defined]
            )
        case "NullKey":
            remedy = (
                "fix the files, or leave the rows out in a dataset without a source: "
                f"append(path, steps=[validate({error.fields['condition']!r}, drop=True)])"
            )
        case "NoSuchFile":
            remedy = (
                "create it, or give the right path: "
                f"`trueline create {name} … --source PATH --on-change from_here`, "
                f"ws.create({name!r}, …, source=…, on_change='from_here')"
            )
        case "Diverged" | "DestinationAhead":
            remedy = (
                "discard the blocks that its origin does not have: "
                f"ws.clone({source!r}, {name!r}, force=True), `trueline clone {quote(source)} {name} --force`"
            )
        case _:
            return error
    return type(error)(error.problem, remedy=remedy, code=error.code, in_shell="", **error.fields)


def _read(
    workspace: Workspace, dataset: Dataset, tail: Tail, polling: SetPollingSource, terms: _Terms
) -> Iterator[Commit | str | BadFile]:
    """Yield a commit for everything new, the names of what is as it was, and files that are left out."""
    _check_known(dataset.name, polling)
    addendum = addendum_of(dataset.chain)
    location = workspace._location
    kept = location.inside(bad_files_path(location.private, dataset._folder))
    bad = BadFiles(kept, addendum, again=terms.resend)
    try:
        yield from _found(workspace, dataset, tail, polling=polling, addendum=addendum, terms=terms, bad=bad)
    finally:
        bad.save()


def _found(
    workspace: Workspace,
    dataset: Dataset,
    tail: Tail,
    *,
    polling: SetPollingSource,
    addendum: Addendum,
    terms: _Terms,
    bad: BadFiles,
) -> Iterator[Commit | str | BadFile]:
    reader = reader_of(polling, tail, addendum)
    base = folder_of(workspace._location)
    step = polling.fetch
    member: str | None = getattr(reader, "member", None)
    if isinstance(step, FetchFilesGlob):
        files = matching(step, base)
        if is_one_file(step, base):
            append = partial(_version, dataset, reader=reader, addendum=addendum, terms=terms)
            yield from bad.without(files, {}, append, lambda path: str(placed(path, base)))
            return
        # Each file of a snapshot is everything there is, so each is a commit.
        size = 1 if isinstance(strategy_of(tail), Snapshot) else FILES_OF_A_COMMIT
        seen = Seen(workspace._location.inside(seen_path(workspace._location.private, dataset._folder)))
        signs = {file.path: signs_of(placed(file.path, base)) for file in files}
        try:
            known, new = _sorted_out(dataset, step, [TakenFile(file, member) for file in files], seen, signs)
            yield from known
            late = [] if size > 1 or terms.resend else late_snapshots(dataset.chain, step, new, member)
            append = partial(_next_files, dataset, reader=reader, addendum=addendum, terms=terms)
            for batch in _batches([file for file in new if file not in late], size):
                yield from bad.without(batch, signs, append, lambda path: str(placed(path, base)))
                kept = ((TakenFile(file, member).name, signs[file.path]) for file in batch)
                seen.keep(kept, dataset.chain)
            if late:
                raise too_late(dataset, step, late)
        finally:
            seen.save(TakenFile(file, member).name for file in files)
        return
    assert isinstance(step, FetchUrl)
    name = masked(step.url)
    if step.cache is not None and _before(dataset, name, member) is not None:
        yield name
    elif urlsplit(step.url).scheme.lower() == "file":
        path = Path(unquote(urlsplit(step.url).path))
        file = replace(Source.file(path), path=name)
        append = partial(_version, dataset, reader=reader, addendum=addendum, terms=terms)
        yield from bad.without([file], {}, append, lambda _: str(path))
    else:
        yield from _fetched(dataset, tail, step, reader, addendum, terms=terms, bad=bad)


def _sorted_out(
    dataset: Dataset,
    step: FetchFilesGlob,
    files: Iterable[TakenFile],
    seen: Seen,
    signs: Mapping[str, tuple[int, ...] | None],
) -> tuple[list[str], list[Source]]:
    """Separate files that need no look, for they are as they were (or kept for ever), from the others."""
    known: list[str] = []
    new: list[Source] = []
    for file in files:
        for_ever = step.cache is not None and file.before(dataset.chain) is not None
        if for_ever or seen.is_known(file.name, signs[file.source.path], dataset.chain):
            known.append(file.name)
        else:
            new.append(file.source)
    return known, new


def _batches(files: Sequence[Source], size: int) -> Iterator[Sequence[Source]]:
    for start in range(0, len(files), size):
        yield files[start : start + size]


def _next_files(
    dataset: Dataset, files: Sequence[Source], *, reader: Reader, addendum: Addendum, terms: _Terms
) -> Commit:
    """Append files of a pattern."""
    request = AppendRequest(
        files,
        reader,
        addendum.max_bad,
        resend=terms.resend,
        polled=Polled(),
        allow_empty=terms.allow_empty or addendum.allow_empty,
        new_columns=terms.new_columns,
    )
    return dataset._append(request, terms.clock)


def _version(
    dataset: Dataset,
    files: Sequence[Source],
    *,
    reader: Reader,
    addendum: Addendum,
    terms: _Terms,
    state: SourceState | None = None,
) -> Commit:
    """Append one file whose content changes, if it has."""
    polled = Polled(versions=True, state=state)
    empty = terms.allow_empty or addendum.allow_empty
    request = AppendRequest(
        files,
        reader,
        addendum.max_bad,
        polled=polled,
        allow_empty=empty,
        new_columns=terms.new_columns,
    )
    return dataset._append(request, terms.clock)


def _fetched(
    dataset: Dataset,
    tail: Tail,
    step: FetchUrl,
    reader: Reader,
    addendum: Addendum,
    *,
    terms: _Terms,
    bad: BadFiles,
) -> Iterator[Commit | str | BadFile]:
    with dataset.chain.store.scratch() as scratch:
        found = fetch(
            step.url,
            scratch,
            source_name=SOURCE,
            headers={header.name: header.value for header in step.headers or ()},
            known=_known(dataset, tail, masked(step.url), getattr(reader, "member", None)),
            limits=HttpLimits(addendum.max_bytes if addendum.max_bytes is not None else MAX_BYTES),
        )
        if found is None:
            yield masked(step.url)
            return
        append = partial(_version, dataset, reader=reader, addendum=addendum, terms=terms, state=found.state)
        yield from bad.without([found.source], {}, append)


def _before(dataset: Dataset, name: str, member: str | None) -> object:
    """Return what was appended last from an address, None if nothing was."""
    return TakenFile(Source.memory(b"", name), member).before(dataset.chain)


def _known(dataset: Dataset, tail: Tail, url: str, member: str | None) -> SourceState | None:
    """Return the version of an address that was read last; a state of another address says nothing."""
    state = tail.data.new_source_state if isinstance(tail.data, AddData) else None
    if state is None or state.source_name != SOURCE or _before(dataset, url, member) is None:
        return None
    declared, read = (dataset.chain.newest(kind) for kind in (SetPollingSource, AddData))
    if declared is not None and read is not None and declared.sequence_number > read.sequence_number:
        return None  # the source was changed since
    return state


# --- what is understood ----------------------------------------------------------------


def reader_of(polling: SetPollingSource, tail: Tail, addendum: Addendum) -> Reader:
    """Return the reader of a recorded source: ours with all its options, else what the read step says."""
    read = polling.read
    if addendum.reader is not None:
        reader = Reader.from_dict(addendum.reader)
        if to_read(reader) == read:
            return reader
    if tail.schema is None and (read.schema is not None or read.ddl_schema is not None):
        raise _unknown("declares its columns", "add a SetDataSchema event to the manifest")
    match read:
        case ReadCsv():
            return CsvReader.from_read_step(to_dict(read))
        case ReadNdJson():
            return JsonReader.from_read_step(to_dict(read))
        case ReadParquet():
            return ParquetReader.from_read_step(to_dict(read))
    raise _unknown(f"is read as {read.KIND}", "use Csv, NdJson or Parquet")


def _check_known(name: str, polling: SetPollingSource) -> None:
    """Refuse a source that asks for more than this version does; nothing is left out silently."""
    step = polling.fetch
    if not isinstance(step, FetchFilesGlob | FetchUrl):
        raise _unknown(f"is fetched by {step.KIND}", "use FilesGlob or Url", name)
    if step.event_time is not None:
        raise _unknown("takes its event time from the source", "put the time into a column", name)
    for prepared in polling.prepare or ():
        # Readers look through gzip by themselves.
        if prepared != Decompress(CompressionFormat.Gzip):
            raise _unknown(f"is prepared by {prepared.KIND}", "prepare the files before", name)
    if polling.preprocess is not None:
        raise _unknown("has a preprocessing query", "prepare the rows before", name)


def _unknown(what: str, remedy: str, name: str = "") -> InputError:
    of = f" of dataset {name!r}" if name else ""
    return InputError(
        f"the source{of} {what}, which this version cannot do", remedy=remedy, code="UnknownSource"
    )
