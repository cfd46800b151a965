r"""JSON text as Java's Jackson writes it, which is how the connectors' files have it.

Compact, keys in the order of the record, of a repeated key the last value at the first one's
place, non-ASCII text as it is, but each half of a surrogate pair as ``\uD83D``, control characters
as ``\u001F`` or their short form, and doubles as ``Double.toString`` has them since Java 19.

Where a Connect worker would lose something we do not follow it: integers keep all their digits,
and what no double can hold is an error.

Source: jackson-core 2.18, ``UTF8JsonGenerator`` and ``CharTypes``; JDK 21, ``Double.toString``.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kbackup.records import Bad

# Where orjson writes otherwise than Jackson: control characters and those beyond the basic plane,
# and numbers with an exponent, of 8 digits before the point or below 0.001.  Found inside a
# string it only costs time.  An integer beyond 64 bits has become a double with an exponent here.
_DIFFERS: Final = r"[\x{10000}-\x{10ffff}]|\\u00|\de[-+]\d+(?:[],}]|$)|\d{8}\.\d|(?:^|[^\d])0\.000"
_LONG_INTEGER: Final = re.compile(rb"\d{19}")

_TOKEN: Final = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+(?:[eE][-+]?\d+)?|[eE][-+]?\d+)', re.DOTALL
)
_CHARACTER: Final = re.compile(r"\\(?:u[0-9a-f]{4}|.)|[\U00010000-\U0010ffff\ud800-\udfff]")


def canonical(column: pa.BinaryArray) -> tuple[pa.StringArray, tuple[Bad, ...]]:
    """Return the JSON texts of *column* as Jackson writes what they mean; null stays null.

    Returns:
        One text a row, and the rows that are not one JSON value in UTF-8, which are null.
    """
    # Per record 1.9 us at 100 B and 6 us at 1 KB, three quarters of it orjson; 20 us and more for
    # a text that orjson writes otherwise than Jackson.
    values = column.to_pylist()
    texts: list[Any] = []  # bytes or text, or None
    bad: list[Bad] = []
    left = iter(values)
    while len(texts) < len(values):
        try:
            for value in left:
                texts.append(None if value is None else _compact(value))  # noqa: PERF401
        except ValueError as error:
            why = str(error) if values[len(texts)] else "it is empty"
            bad.append(Bad(len(texts), _NOT_JSON, why))
            texts.append(None)
    differs = pc.match_substring_regex(pa.array(texts, pa.binary()).cast(pa.string()), _DIFFERS)
    for row in pc.indices_nonzero(differs).to_pylist():
        try:
            is_long = _LONG_INTEGER.search(values[row]) is not None
            texts[row] = _rewritten(_exact(values[row]) if is_long else texts[row].decode())
        except ValueError as error:
            bad.append(Bad(row, _NOT_JSON, str(error)))
            texts[row] = None
    found = pa.array(texts, pa.binary()).cast(pa.string())
    return found, tuple(sorted(bad, key=lambda at: at.row))


def write(values: Sequence[Any]) -> pa.StringArray:
    """Return parsed JSON as Jackson writes it, null for None."""
    texts = [None if value is None else _dumped(value) for value in values]
    differs = pc.match_substring_regex(pa.array(texts, pa.binary()).cast(pa.string()), _DIFFERS)
    for row in pc.indices_nonzero(differs).to_pylist():
        texts[row] = _rewritten((texts[row] or b"").decode())
    return pa.array(texts, pa.binary()).cast(pa.string())


def _dumped(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # integers beyond 64 bits, or half of a surrogate pair
        return _rewritten(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


_NOT_JSON: Final = "a value is not JSON"


def check(text: bytes) -> None:
    """Check that *text* is one JSON value in UTF-8, its numbers of any size; or ``ValueError``."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        _parse(text, number=str, integer=str)


def without_null(texts: pa.StringArray) -> pa.StringArray:
    """Return JSON texts, null for ``null``."""
    return pc.if_else(pc.equal(texts, "null"), pa.scalar(None, pa.string()), texts)


def column(texts: pa.StringArray) -> pa.Array:
    """Return JSON texts as ``pa.json_()``, null for ``null``."""
    return pa.ExtensionArray.from_storage(pa.json_(), without_null(texts))


def string_value(text: str) -> str | None:
    """Return what a JSON string says, None where *text* is JSON of another kind.

    Half of a surrogate pair, which no UTF-8 can hold, is a ``ValueError``.
    """
    if not text.startswith('"'):
        return None
    try:
        value: str = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError("it holds half of a surrogate pair") from error
    return value


NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""How Jackson writes what is no number of JSON, in quotes."""


def scalar(text: str) -> float | bool | str | None:
    """Return what JSON says; an array, an object or no JSON is a ``ValueError``.

    Jackson quotes what is not finite.
    """
    value = orjson.loads(text)
    if isinstance(value, (list, dict)):
        raise ValueError(f"{text[:40]} is an array or an object")  # noqa: TRY004
    found: float | bool | str | None = NOT_FINITE.get(value, value)
    return found


_AWKWARD: Final = r'[\x00-\x1f"\\\x{10000}-\x{10ffff}]'
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
"""What common text holds and JSON escapes; the backslash first, for it begins the others."""

_RARE: Final = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x{10000}-\x{10ffff}]"
"""What else it escapes, and what Jackson writes as a pair of surrogates."""


def quote(column: pa.StringArray) -> pa.StringArray:
    """Turn text into JSON strings, row by row; null stays null."""
    if not pc.any(pc.match_substring_regex(column, _AWKWARD)).as_py():
        return pc.binary_join_element_wise('"', column, '"', "")
    escaped = column
    for plain, escape in _ESCAPES.items():
        escaped = pc.replace_substring(escaped, plain, escape)
    rare = pc.match_substring_regex(column, _RARE)
    if pc.any(rare).as_py():
        texts = column.take(pc.indices_nonzero(rare)).to_pylist()
        escaped = pc.replace_with_mask(
            escaped, pc.fill_null(rare, False), pa.array([_quoted(text)[1:-1] for text in texts])
        )
    return pc.binary_join_element_wise('"', escaped, '"', "")


def java_double(number: float) -> str:
    """Return the text of ``Double.toString``.

    The shortest decimal that gives the double again, of two digits at least: those nearest to it.
    """
    if number == 0:
        return "-0.0" if str(number)[0] == "-" else "0.0"
    two = f"{number:.1e}"
    return java_text(two if float(two) == number else repr(number))


def java_text(text: str) -> str:
    """Return a decimal number as Java writes the double, or float, that it stands for."""
    mantissa, _, exponent = text.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    digits = whole + fraction
    point = len(whole) + int(exponent or 0)  # the value is 0.digits times ten to this
    leading = len(digits) - len(digits.lstrip("0"))
    digits, point = digits.strip("0"), point - leading
    if not digits:
        return f"{sign}0.0"
    if -3 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if 0 < point <= 7:
        return f"{sign}{digits[:point]:0<{point}}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _compact(text: bytes) -> bytes:
    """Return *text* without what says nothing; an integer beyond 64 bits may become a double."""
    try:
        return orjson.dumps(orjson.loads(text))
    except (orjson.JSONDecodeError, TypeError):  # or lone surrogates, or deep: json knows
        return _rewritten(_exact(text))


def _exact(text: bytes) -> str:
    """Return *text* compact, its integers whole, its lone surrogates kept."""
    value = _parse(text, number=_double, integer=_integer)
    with _not_too_deep():
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _parse(text: bytes, number: Callable[[str], Any], integer: Callable[[str], Any]) -> Any:
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 at byte {error.start}") from None
    with _not_too_deep():
        return json.loads(decoded, parse_constant=_refuse, parse_float=number, parse_int=integer)


@contextmanager
def _not_too_deep() -> Iterator[None]:
    try:
        yield
    except RecursionError:  # near 1,000, where Jackson stops as well
        raise ValueError("its arrays or objects are nested too deeply") from None


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _double(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is larger than a double can be")
    return number


def _integer(text: str) -> int:
    if len(text) > 1000:  # where Jackson stops as well
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def _rewritten(text: str) -> bytes:
    return _TOKEN.sub(_token, text).encode()


def _token(match: re.Match[str]) -> str:
    token = match[0]
    if token[0] == '"':
        return _CHARACTER.sub(_character, token)
    return java_double(float(token))


def _character(match: re.Match[str]) -> str:
    found = match[0]
    if found[0] == "\\":
        return "\\u" + found[2:].upper() if found[1] == "u" else found
    units = found.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _quoted(text: str) -> str:
    return _CHARACTER.sub(_character, json.dumps(text, ensure_ascii=False))
