"""Numbers with their nouns: ``1 object``, ``2 objects``."""


def form(number: int | None, one: str, many: str = "") -> str:
    """Return the word that goes with *number*: *many*, or *one* with an ``s``, where it is not 1.

    ::

        f"{number} {form(number, 'object')} {form(number, 'is', 'are')} missing"
    """
    return one if number == 1 else many or f"{one}s"


def counted(number: int, noun: str) -> str:
    """Return *number* with its noun, in the plural where it is not 1."""
    return f"{number} {form(number, noun)}"
