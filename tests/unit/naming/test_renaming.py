"""Renaming topics; agreement with Java is in ``tests/conformance/test_regex_router.py``."""

import pickle
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbackup.errors import ConfigurationError
from kbackup.java.regex import MATCH_TIMEOUT
from kbackup.naming.renaming import Rename, rename

topics = st.text("abcxyzABC019._-", min_size=1, max_size=40)


@settings(deadline=None)
@given(topics)
def test_prefix_keeps_the_name(topic: str) -> None:
    """The documented ``copy_of_$0`` puts its text before any name, and changes nothing else."""
    assert f"copy_of_{topic}" == Rename(replacement="copy_of_$0")(topic)


@settings(deadline=None)
@given(topics, topics)
def test_quoted_name_renames_itself_only(quoted: str, topic: str) -> None:
    r"""A name between ``\Q`` and ``\E`` matches that topic and no other."""
    step = Rename(regex=rf"\Q{quoted}\E", replacement="new")

    assert "new" == step(quoted)
    assert ("new" if topic == quoted else topic) == step(topic)


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=30), st.text(max_size=10))
def test_any_text_is_taken_or_refused(pattern: str, replacement: str) -> None:
    """Whatever stands in a configuration, the answer is a name or a configuration error."""
    try:
        answer = Rename(regex=pattern, replacement=replacement)("orders")
    except ConfigurationError as error:
        answer = error.why

    assert isinstance(answer, str)


@settings(deadline=None, max_examples=300)
@given(st.text(r"ab\(?<=!>[]^&{}|*+-:pQE1,.$xni", max_size=20))
def test_any_syntax_is_taken_or_refused(pattern: str) -> None:
    """No arrangement of Java's own signs is accepted and then fails in the engine."""
    try:
        answer = Rename(regex=pattern, replacement="x")("ab")
    except ConfigurationError as error:
        answer = error.why

    assert answer


def test_steps_follow_each_other() -> None:
    """Several renames work as a connector's chain of transforms: each on the result of the last."""
    steps = [
        Rename(regex=r"prod\.(.*)", replacement="$1"),
        Rename(regex="orders", replacement="sales"),
        Rename(replacement="copy_of_$0"),
    ]

    assert "copy_of_sales" == rename("prod.orders", steps)


def test_no_steps_change_nothing() -> None:
    """Without a rename a topic keeps its name."""
    assert "orders" == rename("orders", [])


def test_crosses_processes() -> None:
    """A rename arrives in a worker as it was."""
    step = Rename(regex=r"(\w+)\.(\w+)", replacement="$2.$1")

    arrived = pickle.loads(pickle.dumps(step))

    assert (step, "orders.prod") == (arrived, arrived("prod.orders"))


@pytest.mark.parametrize(
    ("pattern", "topic"),
    [
        pytest.param(r"(a|aa)+\.", "a" * 249, id="branches that overlap"),
        pytest.param("(.*?-){15}P", "a-" * 124, id="many places for each part"),
    ],
)
def test_runaway_pattern_is_stopped(pattern: str, topic: str) -> None:
    """A pattern that would try for years is given up after a second, naming the option."""
    step = Rename(regex=pattern, replacement="x")
    started = time.process_time()

    with pytest.raises(ConfigurationError, match="--rename-regex") as caught:
        step(topic)

    assert time.process_time() - started < 2 * MATCH_TIMEOUT  # the limit is one of CPU time too
    assert f"{MATCH_TIMEOUT:g} s" in caught.value.why


def test_a_known_attack_is_harmless() -> None:
    """A textbook pattern that explodes elsewhere finds in time that a long name is no match."""
    topic = "a" * 249
    started = time.process_time()

    assert topic == Rename(regex="(a+)+b", replacement="x")(topic)
    assert time.process_time() - started < MATCH_TIMEOUT


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        pytest.param("*abc", "there is nothing before '*'", id="dangling"),
        pytest.param("a{,3}", "not a repetition", id="python's repetition"),
        pytest.param("(?P<a>b)", "(?P is not supported", id="python's named group"),
        pytest.param("[z-a]", "'z' to 'a' is not a range", id="range backwards"),
        pytest.param("(?U)a", "(?U is not supported", id="flag"),
        pytest.param("a(?i)b", "(?i is not supported", id="flag after the beginning"),
        pytest.param(r"\X", r"\X is not supported", id="grapheme"),
        pytest.param(r"\N{DIGIT ONE}", r"\N is not supported", id="named character"),
        pytest.param(r"\p{IsLatin}", r"\p{IsLatin} is not supported", id="script"),
        pytest.param("\u00e9.*", "only printable ASCII", id="no letter of a topic's name"),
        pytest.param("[a-z&&b]", "'&' is not supported in a class", id="intersection, no brackets"),
        pytest.param("(?<=a+)b", "without a limit", id="look-behind without bound"),
        pytest.param("(a*)*b", "'*' repeats what can match nothing", id="empty rounds"),
        pytest.param("(?:ab)++", "write (?>...)", id="possessive group"),
        pytest.param("(?:(?>(a))b|a)\\1", "a back-reference to group 1", id="group in doubt"),
        pytest.param("(a", "lacks its ')'", id="group not closed"),
        pytest.param("(" * 51 + ")" * 51, "more than 50", id="too deep"),
        pytest.param("[" * 1999, "more than 50", id="classes too deep"),
        pytest.param("(?:(?:a|b){1000}){1000}", "more than 2,000 parts", id="too large"),
        pytest.param("a" * 2_001, "longer than 2,000", id="too long"),
    ],
)
def test_refusal_says_why(pattern: str, why: str) -> None:
    """What is not supported is named, so that the operator can write it another way."""
    with pytest.raises(ConfigurationError) as caught:
        Rename(regex=pattern, replacement="x")

    assert why in caught.value.why


@pytest.mark.parametrize(
    ("replacement", "why"),
    [
        pytest.param("$", "'$' at character 0", id="dollar alone"),
        pytest.param("a$b", "'$' at character 1", id="dollar before a letter"),
        pytest.param("$2", "1 group, and none with number 2", id="no such group"),
        pytest.param("${x}", "no group named 'x'", id="no such name"),
        pytest.param("a\\", "ends in a backslash", id="backslash alone"),
    ],
)
def test_replacement_is_checked_against_the_pattern(replacement: str, why: str) -> None:
    """A replacement that could fail on a record is refused while nothing has been written."""
    with pytest.raises(ConfigurationError) as caught:
        Rename(regex="(.*)", replacement=replacement)

    assert why in caught.value.why


def test_group_in_doubt_may_stay_unused() -> None:
    """A group whose content Java and we may see differently spoils a rename only if it is used."""
    pattern = "(?:(?>(a))b|a)c"

    assert "x" == Rename(regex=pattern, replacement="x")("ac")
    with pytest.raises(ConfigurationError, match="refers to group 1"):
        Rename(regex=pattern, replacement="$1")
