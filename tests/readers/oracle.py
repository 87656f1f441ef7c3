"""The rules of docs/reference/readers.md once more, one character and one cell at a time."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from trueline.readers import CsvReader, JsonReader

EPOCH = dt.datetime(1970, 1, 1)
UNIT = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
BAD = object()


@dataclass
class Cell:
    text: bytes = b""
    quoted: bool = False


@dataclass
class Record:
    line: int
    cells: list[Cell] = field(default_factory=list)
    blank: bool = True
    raw: list[bytes] = field(default_factory=list)


class Unterminated(Exception):
    pass


def records(text: bytes, reader: CsvReader) -> list[Record]:  # noqa: C901, PLR0912 - one state machine
    """A character at a time: quotes open at the start of a cell only, the escape works everywhere."""
    separator, quote, escape = (
        mark.encode() if mark else None for mark in (reader.separator, reader.quote, reader.escape)
    )
    out: list[Record] = []
    at, line = 0, 1
    while at < len(text):
        record = Record(line)
        while True:  # a cell
            cell, begin = Cell(), at
            inside = False
            if quote and text[at : at + 1] == quote:
                cell.quoted = inside = True
                at += 1
            while at < len(text):
                byte = text[at : at + 1]
                if escape and byte == escape:
                    if at + 1 >= len(text):
                        raise Unterminated
                    byte = text[at + 1 : at + 2]
                    if byte == b"\n" or (byte == b"\r" and text[at + 2 : at + 3] != b"\n"):
                        line += 1
                    cell.text += byte
                    at += 2
                elif inside:
                    if byte == quote:
                        if text[at + 1 : at + 2] == quote:
                            cell.text += quote
                            at += 2
                            continue
                        inside = False
                    else:
                        if byte == b"\n" or (byte == b"\r" and text[at + 1 : at + 2] != b"\n"):
                            line += 1
                        cell.text += byte
                    at += 1
                elif byte == separator or byte in b"\r\n":
                    break
                else:
                    cell.text += byte
                    at += 1
            if inside:
                raise Unterminated
            record.cells.append(cell)
            record.raw.append(text[begin:at])
            if text[at : at + 1] != separator:
                break
            at += 1
        record.blank = record.raw == [b""]
        if at < len(text):
            at += 2 if text[at : at + 2] == b"\r\n" else 1
            line += 1
        out.append(record)
    return out


def decoded(data: bytes, encoding: str) -> bytes:
    if encoding == "utf-8":
        return data.removeprefix(b"\xef\xbb\xbf")
    return data.decode(encoding).removeprefix("\ufeff").encode()


def csv(
    reader: CsvReader, data: bytes, schema: pa.Schema, columns: list[str] | None = None
) -> dict[str, Any]:
    """What reading comma-separated text gives."""
    found = records(decoded(data, reader.encoding), reader)
    names: list[str] = list(reader.names or schema.names)
    if reader.header:
        while found and found[0].blank:
            found.pop(0)
        if found:
            header = found.pop(0)
            names = list(
                reader.names
                or [cell.text.decode() or f"column_{i}" for i, cell in enumerate(header.cells, 1)]
            )
    if len(names) > 1:
        found = [record for record in found if not record.blank]
    wanted = columns if columns is not None else schema.names
    out: dict[str, Any] = {
        "rows": len(found),
        "columns": {name: [] for name in wanted},
        "bad": [],
        "rounded": {},
    }
    out |= {"short": 0, "undecodable": 0}
    for row, record in enumerate(found):
        out["short"] += len(record.cells) < len(names)
        for name in wanted:
            place = names.index(name) if name in names else None
            value: Any = None
            if place is None:
                pass
            elif place >= len(record.cells):
                out["bad"].append((row, record.line, name, ""))
            else:
                value = typed(record.cells[place], schema.field(name).type, reader, out, name)
                if value is BAD:
                    text = record.cells[place].text.decode("utf-8", "replace")[:1000]
                    out["bad"].append((row, record.line, name, text))
                    value = None
            out["columns"][name].append(value)
        if len(record.cells) > len(names):
            extra = reader.separator.encode().join(record.raw[len(names) :])
            out["bad"].append((row, record.line, "(extra)", extra.decode("utf-8", "replace")[:1000]))
    return counted(out)


def counted(out: dict[str, Any]) -> dict[str, Any]:
    out["counts"] = {}
    for _, _, name, _ in out["bad"]:
        out["counts"][name] = out["counts"].get(name, 0) + 1
    return out


def typed(cell: Cell, kind: pa.DataType, reader: CsvReader, out: dict[str, Any], name: str) -> Any:
    """One cell: missing, a value, or BAD."""
    nulls = {word.encode() for word in reader.nulls}
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if cell.text in nulls and not (is_text and cell.quoted):
        return None
    if pa.types.is_binary(kind):
        return None if cell.text in nulls and not cell.quoted else cell.text
    try:
        text = cell.text.decode()
    except UnicodeDecodeError:
        out["undecodable"] += 1
        return BAD
    if is_text:
        return text
    if not text.strip(" \t"):
        return None
    return value(text, kind, reader, out, name)


def value(text: str, kind: pa.DataType, reader: Any, out: dict[str, Any], name: str) -> Any:
    types = pa.types
    bare = text.strip(" \t")
    if types.is_boolean(kind):
        for word in (text, bare):
            if word in reader.true_values:
                return True
            if word in reader.false_values:
                return False
        return BAD
    if types.is_integer(kind):
        return integer(bare, kind)
    point = getattr(reader, "decimal", ".")
    if types.is_floating(kind):
        return floating(bare, kind, point)
    if types.is_decimal(kind):
        return exact(bare, kind, point)
    if types.is_date(kind):
        found = re.fullmatch(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", bare)
        try:
            return (dt.date(*map(int, found.groups())) - EPOCH.date()).days if found else BAD
        except ValueError:
            return BAD
    if types.is_timestamp(kind):
        return moment(bare, kind, out, name)
    raise AssertionError(kind)


def integer(text: str, kind: pa.DataType) -> Any:
    unsigned = pa.types.is_unsigned_integer(kind)
    if not re.fullmatch(r"\+?[0-9]+" if unsigned else "[+-]?[0-9]+", text):
        return BAD
    low = 0 if unsigned else -(2 ** (kind.bit_width - 1))
    high = 2**kind.bit_width - 1 if unsigned else 2 ** (kind.bit_width - 1) - 1
    return int(text) if low <= int(text) <= high else BAD


def number(text: str, point: str) -> str | None:
    mark = re.escape(point)
    if re.fullmatch(rf"[+-]?([0-9]+({mark}[0-9]*)?|{mark}[0-9]+)([eE][+-]?[0-9]+)?", text):
        return text.replace(point, ".")
    return None


def floating(text: str, kind: pa.DataType, point: str) -> Any:
    word = text.lower().lstrip("+-")
    if word == "nan" and len(text) - len(word) <= 1:
        return "NaN"
    if word in {"inf", "infinity"} and len(text) - len(word) <= 1:
        return float("-inf") if text.startswith("-") else float("inf")
    plain = number(text, point)
    if plain is None:
        return BAD
    found = float(plain)
    if pa.types.is_float32(kind):
        found = pa.scalar(found, pa.float32()).as_py()
    return BAD if found in {float("inf"), float("-inf")} else found


def exact(text: str, kind: pa.DataType, point: str) -> Any:
    plain = number(text, point)
    if plain is None:
        return BAD
    found = decimal.Decimal(plain)
    with decimal.localcontext(decimal.Context(prec=200, Emax=10**6, Emin=-(10**6))):
        scaled = found.scaleb(kind.scale) if abs(found.adjusted()) < 1000 else None
        if not found:
            scaled = decimal.Decimal(0)
        if scaled is None or scaled != scaled.to_integral_value() or abs(scaled) >= 10**kind.precision:
            return BAD
        return scaled.scaleb(-kind.scale).quantize(decimal.Decimal(1).scaleb(-kind.scale))


def moment(text: str, kind: pa.DataType, out: dict[str, Any], name: str) -> Any:
    found = re.fullmatch(
        r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?"
        r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?",
        text,
    )
    if not found:
        return BAD
    day, hour, minute, second, fraction, zone = found.groups()
    try:
        at = dt.datetime.fromisoformat(day).replace(
            hour=int(hour or 0), minute=int(minute or 0), second=int(second or 0)
        )
    except ValueError:
        return BAD
    if zone and kind.tz is None:
        return BAD
    ahead = 0
    if zone and zone != "Z":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        if int(digits[:2]) > 23 or int(digits[2:]) > 59:
            return BAD
        ahead = (int(digits[:2]) * 60 + int(digits[2:])) * (-1 if zone[0] == "-" else 1)
    nanos = int((fraction or "0").ljust(9, "0"))
    step = 10**9 // UNIT[kind.unit]
    since = at - EPOCH
    result = (since.days * 86_400 + since.seconds - ahead * 60) * UNIT[kind.unit] + nanos // step
    if not -(2**63) <= result < 2**63:
        return BAD
    if nanos % step:
        out["rounded"][name] = out["rounded"].get(name, 0) + 1
    return result


# --- JSON lines ---------------------------------------------------------------


class Raw(str):
    """A number as written."""

    __slots__ = ()


def json_lines(
    reader: JsonReader, data: bytes, schema: pa.Schema, columns: list[str] | None = None
) -> dict[str, Any]:
    """What reading JSON lines gives."""
    wanted = columns if columns is not None else schema.names
    out: dict[str, Any] = {"rows": 0, "columns": {name: [] for name in wanted}, "bad": [], "rounded": {}}
    out |= {"short": 0, "undecodable": 0}
    for line, text in enumerate(decoded(data, reader.encoding).split(b"\n"), 1):
        if not text.strip(b" \t\r"):
            continue
        found = an_object(text)
        for name in wanted:
            cell = found.get(name) if found is not None else None
            result = None if cell is None else json_typed(cell, schema.field(name).type, reader, out, name)
            if result is BAD:
                shown = str(cell) if isinstance(cell, str) else shown_json(cell)
                out["bad"].append((out["rows"], line, name, shown.encode("utf-8", "replace").decode()[:1000]))
                result = None
            out["columns"][name].append(result)
        if found is None:
            shown = text.decode("utf-8", "replace").rstrip("\r")[:1000]
            out["bad"].append((out["rows"], line, "(line)", shown))
        out["rows"] += 1
    return counted(out)


def an_object(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text.decode(), parse_int=Raw, parse_float=Raw, parse_constant=Raw)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def shown_json(value: Any) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, list):
        return "[" + ",".join(map(shown_json, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{shown_json(k)}:{shown_json(v)}" for k, v in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def json_typed(cell: Any, kind: pa.DataType, reader: JsonReader, out: dict[str, Any], name: str) -> Any:
    types = pa.types
    if types.is_struct(kind):
        if not isinstance(cell, dict):
            return BAD
        parts = {
            f.name: None if cell.get(f.name) is None else json_typed(cell[f.name], f.type, reader, out, name)
            for f in kind
        }
        return BAD if BAD in parts.values() else parts
    if types.is_list(kind):
        if not isinstance(cell, list):
            return BAD
        items = [
            None if item is None else json_typed(item, kind.value_type, reader, out, name) for item in cell
        ]
        return BAD if any(item is BAD for item in items) else items
    if types.is_string(kind):
        text = str(cell) if isinstance(cell, str) else shown_json(cell)
        return BAD if re.search("[\ud800-\udfff]", text) else text
    if types.is_boolean(kind):
        return cell if isinstance(cell, bool) else BAD
    is_number = isinstance(cell, Raw)
    if types.is_integer(kind) or types.is_floating(kind):
        return value(str(cell), kind, reader, out, name) if is_number else BAD
    if not isinstance(cell, str) or (is_number and not types.is_decimal(kind)):
        return BAD
    return value(str(cell), kind, reader, out, name) if cell.strip(" \t") else None
