"""One bit pattern for every NaN, so that equal tables have equal bytes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

_BITS: Final = {2: np.uint16, 4: np.uint32, 8: np.uint64}
_NAN: Final = {
    2: np.uint16(0x7E00),
    4: np.uint32(0x7FC0_0000),
    8: np.uint64(0x7FF8_0000_0000_0000),
}


def canonical(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column with every NaN in it, at any depth, the same quiet one; without any it is unchanged.

    >>> import struct
    >>> odd = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
    >>> bits = canonical(pa.chunked_array([[1.0, odd, None]])).chunk(0).buffers()[1].to_pybytes()[8:16]
    >>> struct.unpack("<Q", bits)[0] == 0x7FF8_0000_0000_0000
    True
    """
    if not _holds_floats(column.type):
        return column
    chunks = [_chunk(chunk) for chunk in column.chunks]
    if all(new is old for new, old in zip(chunks, column.chunks, strict=True)):
        return column
    return pa.chunked_array(chunks, type=column.type)


def _holds_floats(kind: pa.DataType) -> bool:
    if pa.types.is_floating(kind):
        return True
    return any(_holds_floats(kind.field(index).type) for index in range(kind.num_fields))


def _chunk(array: pa.Array) -> pa.Array:
    if not _leaf_is_odd(array):
        return array
    # Taking every row copies the values to the start of their buffers, which can then be replaced.
    return _mended(array.take(pa.array(np.arange(len(array)))))


def _leaf_is_odd(array: pa.Array) -> bool:
    """Whether any float below holds a NaN of another pattern."""
    if pa.types.is_floating(array.type):
        bits, odd = _odd(array)
        return bits is not None and bool(odd.any())
    return any(_leaf_is_odd(child) for child in _children(array) if _holds_floats(child.type))


def _children(array: pa.Array) -> list[pa.Array]:
    kind = array.type
    if pa.types.is_struct(kind):
        return [array.field(index) for index in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [array.keys, array.items]
    return [array.values]


def _odd(array: pa.Array) -> tuple[Any, Any]:
    width = array.type.bit_width // 8
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return None, None
    bits = np.frombuffer(buffer, dtype=_BITS[width])[array.offset : array.offset + len(array)]
    values = bits.view(f"f{width}")
    return bits, np.isnan(values) & (bits != _NAN[width])


def _mended(array: pa.Array) -> pa.Array:
    kind = array.type
    if not _holds_floats(kind):
        return array
    if pa.types.is_floating(kind):
        bits, odd = _odd(array)
        if bits is None or not odd.any():
            return array
        new = bits.copy()
        new[odd] = _NAN[kind.bit_width // 8]
        validity = array.buffers()[0]
        assert array.offset == 0 or validity is None
        return pa.Array.from_buffers(kind, len(array), [validity, pa.py_buffer(new)])
    assert array.offset == 0
    if pa.types.is_struct(kind):
        parts = [_mended(array.field(index)) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(_mended(array.values), type=kind, mask=array.is_null())
    # A list or a map keeps its offsets and validity, and gets new values.
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], children=[_mended(array.values)])
