"""Arrow columns as the text of expected.json, whatever library read them.

Owns the parser of Arrow's type notation and the encoding of values by the type that the fixture says, so that a library may
deliver large strings, views or other time units as long as the values are the same. Refuses a conversion that loses
something: that is a difference, not a detail. Called by check.py.

Encoding: null, true/false, integers as numbers; float and double as the shortest text that parses back; decimals as text
with `scale` digits; dates, times and timestamps as ISO text with the digits of their unit, with "Z" for an instant; binary
as lower-case hex; list as array, struct as object, map as an array of [key, value] in stored order.
"""
import datetime
import decimal
import re
from decimal import Decimal

import numpy
import pyarrow as pa

decimal.getcontext().prec = 60  # decimal128 has 38 digits, the default of Python 28
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
LEAVES = {"bool": pa.bool_(), "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(),
          "date32[day]": pa.date32(), "time64[us]": pa.time64("us")}


class OtherValues(ValueError):
    """What was read cannot be turned into the type that was written without loss."""


def parse_type(text):
    """The Arrow type that this notation (`str` of a type) stands for."""
    if text in LEAVES:
        return LEAVES[text]
    if re.fullmatch(r"u?int(8|16|32|64)", text):
        return getattr(pa, text)()
    if found := re.fullmatch(r"fixed_size_binary\[(\d+)\]", text):
        return pa.binary(int(found[1]))
    if found := re.fullmatch(r"decimal128\((\d+), (\d+)\)", text):
        return pa.decimal128(int(found[1]), int(found[2]))
    if found := re.fullmatch(r"timestamp\[(\w+)(?:, tz=(.*))?\]", text):
        return pa.timestamp(found[1], found[2])
    if found := re.fullmatch(r"list<(.*)>", text):
        return pa.list_(_field(found[1]))
    if found := re.fullmatch(r"fixed_size_list<(.*)>\[(\d+)\]", text):
        return pa.list_(_field(found[1]), int(found[2]))
    if found := re.fullmatch(r"struct<(.*)>", text):
        return pa.struct([_field(part) for part in _split(found[1])])
    if found := re.fullmatch(r"map<(.*)>", text):
        key, item = _split(found[1])
        return pa.map_(parse_type(key), parse_type(item))
    raise ValueError(f"an Arrow type this program does not know: {text}")


def _field(text):
    """`name: type` or `name: type not null`."""
    name, kind = text.split(": ", 1)
    return pa.field(name, parse_type(kind.removesuffix(" not null")), not kind.endswith(" not null"))


def _split(text):
    """Parts between commas that are in no bracket."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "<([") - (letter in ">)]")
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 2
    return parts + [text[start:]]


def encode_column(column, kind):
    """All values of a column that some library has read, as those of a column of the type `kind`."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_timestamp(kind):
        if (column.type.tz is None) != (kind.tz is None):
            raise OtherValues(f"{column.type} read where {kind} was written")
        values = _cast(column, pa.timestamp(kind.unit, column.type.tz)).cast(pa.int64()).to_pylist()
    elif pa.types.is_time(kind):
        values = _cast(column, kind).cast(pa.int64()).to_pylist()
    elif pa.types.is_date(kind):
        values = _cast(column, kind).cast(pa.int32()).to_pylist()
    else:
        values = column.to_pylist()
    return [encode(value, kind) for value in values]


def _cast(column, kind):
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        raise OtherValues(f"{column.type} read where {kind} was written: {error}") from error


def encode(value, kind):
    """One value: None, or what `to_pylist` gives, with integers for dates and times."""
    types = pa.types
    if value is None:
        return None
    if types.is_boolean(kind) or types.is_string(kind):
        return value
    if types.is_integer(kind):
        return int(value)
    if types.is_float32(kind):
        return str(numpy.float32(value))
    if types.is_float64(kind):
        return repr(float(value))
    if types.is_decimal(kind):
        exact = value.quantize(Decimal(1).scaleb(-kind.scale))
        if exact != value:
            raise OtherValues(f"{value} has more digits than {kind}")
        return format(exact, "f")
    if types.is_date(kind):
        return _date(value)
    if types.is_timestamp(kind):
        days, rest = divmod(value, 86400 * PER_SECOND[kind.unit])
        return f"{_date(days)}T{_clock(rest, kind.unit)}" + ("Z" if kind.tz else "")
    if types.is_time(kind):
        return _clock(value, kind.unit)
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return value.hex()
    if types.is_map(kind):
        # A library without maps delivers a list of structs of key and value.
        pairs = [tuple(entry.values()) if isinstance(entry, dict) else entry for entry in value]
        return [[encode(key, kind.key_type), encode(item, kind.item_type)] for key, item in pairs]
    if types.is_list(kind) or types.is_fixed_size_list(kind):
        return [encode(item, kind.value_type) for item in value]
    if types.is_struct(kind):
        return {field.name: encode(value[field.name], field.type) for field in kind}
    raise TypeError(kind)


def _date(days):
    return (datetime.date(1970, 1, 1) + datetime.timedelta(days=days)).isoformat()


def _clock(value, unit):
    whole, fraction = divmod(value, PER_SECOND[unit])
    text = f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    return text + (f".{fraction:0{DIGITS[unit]}d}" if DIGITS[unit] else "")
