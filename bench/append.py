"""Appending 1,000 rows, in short and in long chains, beside the peers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.machine import lacks_room
from bench.peers import PEERS, Appended, Peer, append_for
from bench.run import Run
from bench.table import Row, Value, duration
from bench.timing import Samples, alternate, settle, timed
from bench.writers import LEVELS, Writer

FASTER = 4.0
GROWTH = 1.2
BESIDE = 100  # the short chain that the longest is held against
AROUND = "commit n: the median of the 50 commits around it; for 10, of those after the first."
NOTES = {
    "chain": "slice ready: Parquet bytes and hashes were made before; timed are storing it, block and head.",
    "workspace": "in-memory rows: ds.append(table), with Parquet, both hashes, schema check and index.",
}


@dataclass(frozen=True)
class Point:
    """Commits measured around one number: durable, and without syncing."""

    number: int
    durable: Samples
    unsynced: Samples


def run(run: Run) -> Iterator[Row]:
    longest = max(run.scale.commits)
    if missing := lacks_room(run.folder, 4 * longest):
        yield Row("append", f"append at commit {longest:,}", note=f"append was not measured: {missing}")
        return
    measured: dict[str, list[Point]] = {}
    for level, kind in LEVELS.items():
        writer = kind(run.folder / f"append-{level}")
        measured[level] = []
        for point in _points(run, writer):
            measured[level].append(point)
            ours = _with_unsynced(point)
            what = f"append, {writer.label}, commit {point.number:,}"
            yield Row("append", what, ours, note=NOTES[level])
        yield _growth(run, writer, kind(run.folder / f"append-{level}-short"))
        writer.close()
    if run.peers:
        yield from _beside_peers(run, measured)


def _points(run: Run, writer: Writer) -> Iterator[Point]:
    window = run.scale.window
    for number in run.scale.commits:
        with run.doing(f"{writer.label}: filling up to commit {number:,}"):
            writer.fill(number - window // 2)
        yield Point(number, _sampled(writer, window), _sampled(writer, window, durable=False))


def _sampled(writer: Writer, count: int, *, durable: bool = True) -> Samples:
    writer.open(durable=durable)
    writer.prepare(count + 1)
    settle()
    writer.commit()
    samples = Samples(tuple(timed(writer.commit) for _ in range(count)))
    writer.close()
    return samples


def _growth(run: Run, long: Writer, short: Writer) -> Row:
    """Commit to the longest chain and to a short one in turn."""
    short.fill(min(BESIDE - run.scale.window // 2, max(run.scale.commits)))
    for writer in (long, short):
        writer.open(durable=True)
        writer.prepare(run.scale.window + 3)
    settle()
    taken = alternate({"long": long.commit, "short": short.commit}, run.scale.window)
    short.close()
    ratio = taken["long"].median / taken["short"].median
    far = max(run.scale.commits)
    return Row(
        "append",
        f"append, {long.label}, commit {far:,} beside {BESIDE}, in turn",
        duration(taken["long"]),
        duration(taken["short"], f"commit {BESIDE}: "),
        ratio,
        f"≤ {GROWTH}",
        ratio <= GROWTH,
        AROUND,
    )


def _beside_peers(run: Run, measured: dict[str, list[Point]]) -> Iterator[Row]:
    for peer in PEERS:
        if peer.version is None:
            note = f"{peer.name} was not measured: it is not installed (make bench does that)"
            yield Row("append", f"append beside {peer.name}", note=note)
            continue
        with run.doing(f"{peer.name} {peer.version}: appending for {run.scale.peer_seconds:g} s"):
            theirs = append_for(peer, run.folder / f"peer-{peer.name}", run.scale.peer_seconds)
        for level, points in measured.items():
            yield from _held_against(peer, theirs, level, points, window=run.scale.window)


def _held_against(
    peer: Peer, appended: Appended, level: str, points: list[Point], *, window: int
) -> Iterator[Row]:
    first, samples = points[0].number, appended.samples
    early = samples.part(1, window + 1) if samples.count > 1 else samples
    late = samples.part(-window)
    reached = appended.commits
    label = LEVELS[level].label
    # The first of ours that is at least as far on as the peer came: the choice that is harder for us.
    ours_late = next((point for point in points if point.number >= reached), points[-1])
    for number, ours, theirs in ((first, points[0], early), (reached, ours_late, late)):
        ratio, unsynced = (theirs.median / taken.median for taken in (ours.durable, ours.unsynced))
        is_goal = level == "workspace"
        yield Row(
            "append",
            f"append, {label}, commit {ours.number:,} beside {peer.name}",
            _with_unsynced(ours),
            duration(theirs, f"{peer.name} {peer.version}, commit {number:,}: "),
            ratio,
            f"≥ {FASTER:g} × faster" if is_goal else "",
            ratio >= FASTER if is_goal else None,
            peer.note,
            aside=f"unsynced {unsynced:.2f}",
        )
    if level == "workspace":
        yield _from_where(peer, samples, points[0].durable, window)


def _from_where(peer: Peer, theirs: Samples, ours: Samples, window: int) -> Row:
    """From which commit on the peer takes as many times as long as the goal says: its commits grow."""
    medians = [theirs.part(at, at + window).median for at in range(0, theirs.count, window)]
    short = [at for at, median in enumerate(medians) if median < FASTER * ours.median]
    first = 0 if not short else (short[-1] + 1) * window
    reached = f"commit {first:,}" if first < theirs.count else f"none of {theirs.count:,} commits"
    what = f"append, in-memory rows: {FASTER:g} × faster than {peer.name} from"
    return Row("append", what, Value(reached, {"commit": first, "of": theirs.count}), note=AROUND)


def _with_unsynced(point: Point) -> Value:
    durable, unsynced = duration(point.durable), duration(point.unsynced)
    data = {"durable": durable.data, "unsynced": unsynced.data}
    return Value(f"{durable.text}; unsynced {unsynced.text.split(' (')[0]}", data)
