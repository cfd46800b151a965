r"""Java's regular expressions, translated for the ``regex`` module.

The pattern is read by Java's rules and written again in the few constructs on which both engines
agree: explicit sets, groups, quantifiers, look-around and numbered back-references.  Flags are
worked into the text, so the result needs none::

    (?i)[a-f&&[^c]]+\Q.v1\E   ->   (?:[A-BD-Fa-bd-f]){1,}\U0000002e[V-Vv-v]1

What Java refuses is refused, and so, by name, is what cannot be kept faithful; nothing is guessed.

Source: ``java.util.regex.Pattern``, documentation of Java 17, and the behaviour of OpenJDK 17.0.15,
with which the vectors in ``tests/conformance/cases`` were computed.
"""

from kbackup.java_regex.parser import IN_DOUBT, JavaPattern, translate
from kbackup.java_regex.scanner import PatternError

__all__ = ["IN_DOUBT", "JavaPattern", "PatternError", "translate"]
