"""One bit pattern for every NaN, and where keys ask for it one zero, so that equal values have equal bytes.

Here and nowhere else: what is stored, hashed, compared and made a key goes through these functions.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# The quiet NaN by width in bytes.
_NAN: Final[dict[int, np.unsignedinteger[Any]]] = {
    2: np.uint16(0x7E00),
    4: np.uint32(0x7FC0_0000),
    8: np.uint64(0x7FF8_0000_0000_0000),
}


def canonical_bits(array: pa.Array, *, one_zero: bool = False) -> npt.NDArray[Any]:
    """Return the bits of floats, every NaN the same and if asked for every zero; where null, any bits.

    >>> [hex(bits) for bits in canonical_bits(pa.array([-0.0, float("nan")]), one_zero=True).tolist()]
    ['0x0', '0x7ff8000000000000']
    """
    width = array.type.bit_width // 8
    bits = _bits(array)
    found = np.where(np.isnan(bits.view(f"f{width}")), _NAN[width], bits)
    if one_zero:
        # Nothing but the sign: -0.0.
        found[found == bits.dtype.type(1 << (8 * width - 1))] = 0
    return found


def canonical_floats(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return numbers with one NaN and one zero."""
    with np.errstate(invalid="ignore"):  # signalling NaN
        found = values + 0.0  # -0.0 + 0.0 is 0.0
    nan = np.isnan(found)
    if nan.any():
        found.view(np.uint64)[nan] = _NAN[8]
    return found


def _bits(array: pa.Array) -> npt.NDArray[Any]:
    """The bits of an array of floats as they lie in memory."""
    width = array.type.bit_width // 8
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array), f"u{width}")
    return np.frombuffer(buffer, f"u{width}", len(array), array.offset * width)


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
    # Taking every row lays the values out anew from the start of their buffers, which can then be replaced.
    return _replaced(array.take(pa.array(np.arange(len(array)))))


def _leaf_is_odd(array: pa.Array) -> bool:
    """Whether any float below holds a NaN of another pattern."""
    if pa.types.is_floating(array.type):
        return bool(_odd(_bits(array)).any())
    return any(_leaf_is_odd(child) for child in _children(array) if _holds_floats(child.type))


def _children(array: pa.Array) -> list[pa.Array]:
    kind = array.type
    if pa.types.is_struct(kind):
        return [array.field(index) for index in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [array.keys, array.items]
    return [array.values]


def _odd(bits: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Say which are NaN of another pattern."""
    width = bits.itemsize
    found: npt.NDArray[np.bool_] = np.isnan(bits.view(f"f{width}")) & (bits != _NAN[width])
    return found


def _replaced(array: pa.Array) -> pa.Array:
    kind = array.type
    if not _holds_floats(kind):
        return array
    if pa.types.is_floating(kind):
        bits = _bits(array)
        odd = _odd(bits)
        if not odd.any():
            return array
        new = bits.copy()
        new[odd] = _NAN[bits.itemsize]
        validity = array.buffers()[0]
        assert array.offset == 0 or validity is None
        return pa.Array.from_buffers(kind, len(array), [validity, pa.py_buffer(new)])
    assert array.offset == 0
    if pa.types.is_struct(kind):
        parts = [_replaced(array.field(index)) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(_replaced(array.values), type=kind, mask=array.is_null())
    # A list or a map keeps its offsets and validity, and gets new values.
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], children=[_replaced(array.values)])
