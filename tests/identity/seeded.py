"""Dataset ids made from a word, as the golden blocks use them; no private key belongs to them."""

from __future__ import annotations

from trueline.identity import DatasetId

MASK = (1 << 64) - 1


def seeded_id(text: str) -> DatasetId:
    """Return the id whose key is the first 32 bytes of xoshiro256++ seeded with the padded text."""
    seed = text.encode().ljust(32, b"\0")
    assert len(seed) == 32, f"{text!r} is longer than a seed"
    state = [int.from_bytes(seed[i : i + 8], "little") for i in range(0, 32, 8)]
    key = b"".join(_next(state).to_bytes(8, "little") for _ in range(4))
    return DatasetId.from_bytes(b"\xed\x01" + key)


def _next(s: list[int]) -> int:
    result = (_rotl((s[0] + s[3]) & MASK, 23) + s[0]) & MASK
    shifted = (s[1] << 17) & MASK
    s[2] ^= s[0]
    s[3] ^= s[1]
    s[1] ^= s[2]
    s[0] ^= s[3]
    s[2] ^= shifted
    s[3] = _rotl(s[3], 45)
    return result


def _rotl(word: int, by: int) -> int:
    return ((word << by) | (word >> (64 - by))) & MASK
