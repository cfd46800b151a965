"""Make foreign text harmless: what a terminal would obey is shown, not sent.

Topic names, object keys, record text and servers' answers are input.  Among them may be control
sequences that move the cursor, marks that reverse the direction of writing, and half characters
that cannot be encoded.
"""

import unicodedata


def escape(text: str) -> str:
    r"""Return *text* in one line, with what does not print as its escape, such as ``\x1b``.

    Escaped are control and format characters (bidirectional marks and zero-width ones among them),
    line and paragraph separators, surrogates, private and unassigned characters.  Spaces of any
    width stay.  Backslashes stay too, so this is for reading, not for reading back.
    """
    if text.isprintable():
        return text
    return "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode("ascii")
