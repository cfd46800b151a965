r"""Java's regular expressions, as far as they mean the same in the ``regex`` library.

A pattern is read piece by piece against a list of what Java and ``regex`` (version 1, ASCII) agree
on over the names of topics: `tokens` is the list, `reader` knows how its pieces may be combined.
A few pieces are spelled another way for the engine::

    \Qa.b\E  ->  a\.b     \0141  ->  \x61     \p{Alpha}  ->  [A-Za-z]     \k<env>  ->  \g<1>

Everything else is refused, with its place; nothing is guessed.

Source: ``java.util.regex.Pattern``, documentation of Java 17.  The vectors in
``tests/conformance/cases/java_regex.yaml`` were computed with OpenJDK 17.0.15.
"""

from kbackup.java_regex.pattern import IN_DOUBT, JavaPattern, PatternError
from kbackup.java_regex.reader import translate

__all__ = ["IN_DOUBT", "JavaPattern", "PatternError", "translate"]
