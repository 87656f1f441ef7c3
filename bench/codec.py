"""Blocks to bytes and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from bench.chains import Place, close
from bench.run import Run
from bench.table import Row, duration
from bench.timing import Samples, sample
from trueline.chain import Block
from trueline.chain.decode import decode

T = TypeVar("T")
NOTE = (
    "codec: per block. A block whose shape was seen before is decoded by one comparison; "
    "the first of a shape is read field by field."
)


def run(run: Run) -> Iterator[Row]:
    family = run.family(min(run.scale.blocks))
    for what, place in (("AddData", family.root), ("ExecuteTransform, two inputs", family.joined)):
        blocks = _blocks(place, run.scale.codec_blocks)
        raws = [block.to_bytes() for block in blocks]
        # A block keeps its bytes, so each sample needs new ones.
        fresh = [[replace(block) for block in blocks] for _ in range(3)]
        yield _row(f"encode {what}", _each(_encode, fresh))
        assert [block.to_bytes() for block in fresh[0]] == raws
        yield _row(f"decode {what}", _each(_decode, [raws] * 3))
        yield _row(f"decode {what}, first of its shape", _each(_decode_plainly, [raws] * 3))


def _encode(blocks: list[Block]) -> None:
    for block in blocks:
        block.to_bytes()


def _decode(raws: list[bytes]) -> None:
    for raw in raws:
        Block.from_bytes(raw)


def _decode_plainly(raws: list[bytes]) -> None:
    for raw in raws:
        decode(raw, Block)


def _blocks(place: Place, count: int) -> list[Block]:
    """Read blocks of the chain, again and again if it is short."""
    chain = place.open()
    found = [chain.block(entry.hash) for entry in chain.entries()][3:]
    close(chain)
    return [found[number % len(found)] for number in range(count)]


def _each(action: Callable[[list[T]], object], batches: list[list[T]]) -> Samples:
    left = iter(batches)
    taken = sample(lambda: action(next(left)), len(batches))
    return Samples(tuple(seconds / len(batches[0]) for seconds in taken.seconds))


def _row(what: str, samples: Samples) -> Row:
    return Row("codec", what, duration(samples), note=NOTE)
