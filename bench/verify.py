"""Verifying a chain's metadata: how fast, and whether the time grows with the length alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.chains import Place, opened
from bench.machine import lacks_room
from bench.run import Run
from bench.table import Row, rate
from bench.timing import Samples, alternate, settle
from trueline.chain import Chain
from trueline.chain.verify import verify_blocks

LEAST = 20_000
LINEAR = 1.2
ROUNDS = 4
NOTE = (
    "verify, warm page cache: every block read, hashed, decoded, linked and held against every rule. "
    "A derivative with its inputs at hand also proves each interval on the inputs' chains (R4, R5, R10)."
)


def run(run: Run) -> Iterator[Row]:
    lengths = run.scale.verify
    longest = max(lengths)
    if missing := lacks_room(run.folder, 3 * longest):
        yield Row("verify", f"verify {longest:,} blocks", note=f"verify was not measured: {missing}")
        return
    family = run.family(longest)
    settle()
    rates = _in_turn(family.root, lengths)
    for length, samples in rates.items():
        yield _row(f"verify {length:,} blocks of a root", length, samples)
    few, many = min(lengths), longest
    growth = (rates[many].median / many) / (rates[few].median / few)
    what = f"verify, time per block at {many:,} beside {few:,}"
    yield Row("verify", what, ratio=growth, goal=f"≤ {LINEAR} (linear)", met=growth <= LINEAR)
    alone = Place(family.joined.folder, family.joined.index, family.joined.id)
    yield _row(f"verify {few:,} blocks of a derivative, inputs absent", few, _in_turn(alone, (few,))[few])
    yield _row(
        f"verify {few:,} blocks of a derivative, two inputs", few, _in_turn(family.joined, (few,))[few]
    )


def _row(what: str, length: int, samples: Samples) -> Row:
    speed = length / samples.median
    return Row(
        "verify", what, rate(speed, "blocks", samples), goal=f"≥ {LEAST:,}/s", met=speed >= LEAST, note=NOTE
    )


def _in_turn(place: Place, lengths: tuple[int, ...]) -> dict[int, Samples]:
    """Verify the first blocks of one chain, each length in turn: a busy minute must not look like growth."""
    with opened(place) as chain:
        actions = {str(length): partial(_verified, chain, length) for length in lengths}
        taken = alternate(actions, ROUNDS, warmup=1)
    return {length: taken[str(length)] for length in lengths}


def _verified(chain: Chain, length: int) -> None:
    entry = chain.entry_number(length - 1)
    assert entry is not None
    report = verify_blocks(chain, upto=entry.hash)
    assert report.ok, report
    assert report.blocks == length
