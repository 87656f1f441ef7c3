"""Keys are counted in as many passes as memory asks for, with the same result."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from trueline.dataset import key_counts
from trueline.dataset.key_counts import Share, counted


@pytest.mark.contract("derive:V26")
@pytest.mark.parametrize("most", [800, 5_000, 1 << 20])
def test_what_is_held_is_bounded_and_every_key_is_counted(monkeypatch, most):
    monkeypatch.setattr(key_counts, "KEY_BYTES", most)
    random_ = random.Random(7)
    # One key of very many rows does not make its share too large.
    keys = [b"often"] * 2_000 + [f"key {random_.randrange(600)}".encode() for _ in range(3_000)]
    random_.shuffle(keys)
    passes = []

    def read():
        passes.append(1)
        return (pa.array(keys[at : at + 10]) for at in range(0, len(keys), 10))

    found, largest = Counter(), 0
    for share, part in counted(read):
        assert share.of(part.keys).equals(part.keys)
        assert part.keys.to_pylist() == sorted(set(part.keys.to_pylist()))
        assert not set(part.keys.to_pylist()) & set(found)
        found.update(dict(zip(part.keys.to_pylist(), part.counts.tolist(), strict=True)))
        largest = max(largest, part.keys.nbytes)
    assert found == Counter(keys)
    assert largest <= most
    assert (len(passes) == 1) == (most == 1 << 20)


def test_no_keys_are_one_share_without_any():
    ((share, found),) = counted(lambda: iter(()))
    assert share == Share(0, 1)
    assert len(found.keys) == len(found.counts) == 0
