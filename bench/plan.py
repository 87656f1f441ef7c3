"""Planning the next transaction, and finding the slices of a view, in short and in long chains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from bench.chains import SLICES, Family, Place, close
from bench.machine import lacks_room
from bench.run import Run
from bench.table import Row, duration
from bench.timing import Action, alternate, settle

CASES = {
    "root": "root, data in every block",
    "sparse": "derivative, 12 slices in all",
    "joined": "derivative, inputs at two rates",
}
NOTE = (
    "plan, cold: new objects on a warm page cache: open store, index and inputs, find the tail and the "
    "inputs' positions, build the block. warm: the same objects again."
)
MOST = 1.2


def run(run: Run) -> Iterator[Row]:
    short, long = run.scale.blocks
    if missing := lacks_room(run.folder, 3 * (short + long)):
        yield Row("plan", f"plan at {long:,} blocks", note=f"plan was not measured: {missing}")
        return
    families = {length: run.family(length) for length in (short, long)}
    settle()
    for name, case in CASES.items():
        places = {length: getattr(family, name) for length, family in families.items()}
        yield _row(run, f"plan, cold: {case}", {n: partial(plan_cold, place) for n, place in places.items()})
        yield _warm(run, case, places)
    yield from _views(run, families)


def plan_cold(place: Place) -> None:
    chain = place.open()
    place.next_transaction(chain)
    close(chain)


def open_view(place: Place) -> None:
    """Find the twelve slices as a reader does who has just opened the dataset."""
    chain = place.open()
    position = chain.position
    assert position is not None
    assert position.offset is not None
    assert len(list(chain.slice_blocks(0, position.offset))) == SLICES
    close(chain)


def _warm(run: Run, case: str, places: dict[int, Place]) -> Row:
    chains = {length: place.open() for length, place in places.items()}
    actions = {length: partial(places[length].next_transaction, chain) for length, chain in chains.items()}
    row = _row(run, f"plan, warm: {case}", actions)
    for chain in chains.values():
        close(chain)
    return row


def _views(run: Run, families: dict[int, Family]) -> Iterator[Row]:
    places = {length: family.sparse for length, family in families.items()}
    yield _row(run, "open a view: find its 12 slices", {n: partial(open_view, p) for n, p in places.items()})


def _row(run: Run, what: str, actions: Mapping[int, Action]) -> Row:
    short, long = run.scale.blocks
    taken = alternate({str(length): action for length, action in actions.items()}, run.scale.rounds)
    few, many = taken[str(short)], taken[str(long)]
    ratio = many.median / few.median
    return Row(
        "plan",
        what,
        duration(many, f"{long:,} blocks: "),
        duration(few, f"{short:,}: "),
        ratio,
        f"≤ {MOST} × at {short:,}",
        ratio <= MOST,
        NOTE,
    )
