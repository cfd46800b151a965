"""Reading what stands for one character: a class in brackets, an escape, a property."""

from kbackup.java_regex import charsets
from kbackup.java_regex.charsets import CharSet
from kbackup.java_regex.scanner import Scanner


def read_class(scan: Scanner) -> CharSet:
    """Read a class whose '[' is taken, and its ']'."""
    with scan.nested():
        if is_negated := scan.follows("^"):
            scan.take()
        members = _members(scan)
        scan.take()
        return charsets.complement(members) if is_negated else members


def escaped_set(scan: Scanner, char: str) -> CharSet:
    """Return what *char*, just read after a backslash, stands for, reading what belongs to it."""
    if char in charsets.ESCAPES:
        return charsets.ESCAPES[char]
    if char in {"p", "P"}:
        return _property(scan, is_negated=char == "P")
    code = scan.code_of(char)
    return folded(scan, code, code)


def folded(scan: Scanner, low: int, high: int) -> CharSet:
    """Return the range of code points, with their other cases if the flags say so."""
    if not scan.has("i"):
        return ((low, high),)
    if scan.has("u"):
        return charsets.fold_unicode(low, high)
    return charsets.fold_ascii(((low, high),))


def _property(scan: Scanner, *, is_negated: bool) -> CharSet:
    name = scan.inside()
    if name == "{":
        name = ""
        while (char := scan.inside()) != "}":
            name += char or scan.refuse("\\p{...} lacks its '}'")
    members = charsets.named(name, ignore_case=scan.has("i"))
    if members is None:
        scan.refuse(
            f"\\p{{{name}}} is not supported; the POSIX classes, such as \\p{{Alpha}}, and the "
            "general categories, such as \\p{Lu}, are"
        )
    return charsets.complement(members) if is_negated else members


def _members(scan: Scanner) -> CharSet:
    """Read up to the ']' that ends the class; one that comes first is a member."""
    parts: list[CharSet] = []
    while (char := scan.peek()) != "]" or not parts:
        if not char:
            scan.refuse("a class lacks its ']'")
        scan.take()
        if char == "[":
            parts.append(read_class(scan))
        elif char == "&" and _is_doubled(scan):
            parts = [_intersection(scan, parts)]
        else:
            parts.append(_range(scan, char))
    return charsets.union(*parts)


def _is_doubled(scan: Scanner) -> bool:
    scan.refuse_gap()
    if is_doubled := scan.follows("&"):
        scan.take()
    return is_doubled


def _intersection(scan: Scanner, left: list[CharSet]) -> CharSet:
    right: list[CharSet] = []
    with scan.nested():
        while (char := scan.peek()) and char not in "]&":
            if char == "[":
                scan.take()
                right.append(read_class(scan))
            else:
                right.append(_members(scan))
    if not left or not right or char == "&":
        scan.refuse(
            "a '&&' lacks one of its sides, or '&' follows what it intersects with; put each side "
            "into brackets"
        )
    return charsets.intersection(charsets.union(*left), charsets.union(*right))


def _range(scan: Scanner, char: str) -> CharSet:
    """Read what *char*, already taken, begins: one character, a range or an escape."""
    code = ord(char)
    if char == "\\":
        char = scan.after_backslash()
        is_end = char == "v" and scan.follows("-")  # \v is one character at either end of a range
        if not is_end and (char in charsets.ESCAPES or char in {"p", "P"}):
            return escaped_set(scan, char)
        code = _code(scan, char)
    return folded(scan, code, _last_of_range(scan, code))


def _last_of_range(scan: Scanner, first: int) -> int:
    """Read what follows *first* if that makes a range; return its last character."""
    if scan.peek() != "-" or scan.follows("-]") or scan.follows("-["):
        return first
    scan.take()
    char = scan.take() or scan.refuse("a class lacks its ']'")
    last = _code(scan, scan.after_backslash()) if char == "\\" else ord(char)
    if last < first:
        scan.refuse(f"{chr(first)!r} to {chr(last)!r} is no range")
    return last


def _code(scan: Scanner, char: str) -> int:
    return ord("\v") if char == "v" else scan.code_of(char)
