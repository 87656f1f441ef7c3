"""Bytes as text that names its own base: base16 is written, `f F u z` are read."""

from __future__ import annotations

import binascii

from trueline.errors import InputError

# Decoding base58 is quadratic in the length; this is ample for keys and hashes and costs less than 5 ms.
MAX_TEXT = 4096

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE58_VALUE = {symbol: value for value, symbol in enumerate(_BASE58)}
_BASE64_VALUE_OF_URL = str.maketrans("-_", "+/")
_ACCEPTED = "accepted are f and F (base16), u (base64url without padding) and z (base58btc)"


def encode(data: bytes) -> str:
    r"""Write bytes in the one base written here, lower-case base16.

    >>> encode(b"\x16\x20")
    'f1620'
    """
    return "f" + data.hex()


def encode_base58(data: bytes) -> str:
    r"""Write bytes as `z` and base58btc, the base `did:key` is published in.

    >>> encode_base58(b"\x00\x01")
    'z12'
    """
    number = int.from_bytes(data, "big")
    symbols: list[str] = []
    while number:
        number, value = divmod(number, 58)
        symbols.append(_BASE58[value])
    zeros = len(data) - len(data.lstrip(b"\0"))
    return "z" + "1" * zeros + "".join(reversed(symbols))


def decode(text: str) -> bytes:
    r"""Read multibase text, whatever its origin; anything that is not valid raises `InputError`.

    >>> decode("f1620"), decode("F1620"), decode("uFiA"), decode("z12")
    (b'\x16 ', b'\x16 ', b'\x16 ', b'\x00\x01')
    """
    if not isinstance(text, str):
        raise _refused(f"multibase text is expected, not {type(text).__name__}")
    if len(text) > MAX_TEXT:
        raise _refused(f"multibase text of {len(text)} characters is longer than {MAX_TEXT}")
    base, payload = text[:1], text[1:]
    if base in ("f", "F"):
        return _decode_base16(payload)
    if base == "u":
        return _decode_base64url(payload)
    if base == "z":
        return _decode_base58(payload)
    raise _refused(f"multibase prefix {base!r} is not known" if base else "multibase text is empty")


def _decode_base16(payload: str) -> bytes:
    try:
        return binascii.unhexlify(payload)  # unlike bytes.fromhex it does not pass over white space
    except ValueError:
        raise _refused(f"{_excerpt(payload)} is not base16") from None


def _decode_base64url(payload: str) -> bytes:
    if any(symbol in payload for symbol in "+/="):
        raise _refused(f"{_excerpt(payload)} is base64 of another alphabet or with padding")
    try:
        standard = payload.translate(_BASE64_VALUE_OF_URL) + "=" * (-len(payload) % 4)
        data = binascii.a2b_base64(standard, strict_mode=True)
    except ValueError:
        raise _refused(f"{_excerpt(payload)} is not base64url") from None
    # Unused low bits of the last symbol must be zero, or two texts would name the same bytes.
    if binascii.b2a_base64(data, newline=False).decode() != standard:
        raise _refused(f"{_excerpt(payload)} is not canonical base64url")
    return data


def _decode_base58(payload: str) -> bytes:
    number = 0
    for symbol in payload:
        value = _BASE58_VALUE.get(symbol)
        if value is None:
            raise _refused(f"{_excerpt(payload)} is not base58btc: {symbol!r} is not in its alphabet")
        number = number * 58 + value
    zeros = len(payload) - len(payload.lstrip("1"))
    return b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _refused(problem: str) -> InputError:
    return InputError(problem, remedy=_ACCEPTED, code="BadMultibase")
