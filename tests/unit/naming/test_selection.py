"""Which topics a command works on."""

import re

import pytest

from kbackup.errors import ConfigurationError
from kbackup.naming.renaming import TopicFilter

THERE = ["__consumer_offsets", "_schemas", "orders", "payments", "prod.orders"]


@pytest.mark.parametrize(
    ("topics", "pattern", "expected"),
    [
        pytest.param([], None, ["orders", "payments", "prod.orders"], id="all but internal ones"),
        pytest.param(["orders", "gone"], None, ["gone", "orders"], id="by name, there or not"),
        pytest.param(["__consumer_offsets"], None, ["__consumer_offsets"], id="internal, named"),
        pytest.param([], ".*orders", ["orders", "prod.orders"], id="the whole name matches"),
        pytest.param([], "order", [], id="a part of the name does not"),
        pytest.param([], "_.*", [], id="no pattern selects internal topics"),
        pytest.param([], r"\p{Lower}+", ["orders", "payments"], id="Java's classes"),
    ],
)
def test_topics_are_selected(topics: list[str], pattern: str | None, expected: list[str]) -> None:
    """Names win over the pattern, and internal topics want to be named."""
    assert expected == TopicFilter(topics, pattern).topics(THERE)


@pytest.mark.parametrize(
    ("asked", "expected", "excluded"),
    [
        pytest.param(
            TopicFilter(excluded=".*orders"),
            ["payments"],
            ["orders", "prod.orders"],
            id="all but these",
        ),
        pytest.param(
            TopicFilter(pattern=".*s", excluded="p.*"),
            ["orders"],
            ["payments", "prod.orders"],
            id="both",
        ),
        pytest.param(TopicFilter(excluded="order"), THERE[2:], [], id="a part of the name"),
    ],
)
def test_topics_are_left_out(asked: TopicFilter, expected: list[str], excluded: list[str]) -> None:
    """By their whole names; which they are, internal ones too, can be said."""
    left = asked.left_out(THERE)

    assert (expected, excluded, THERE[:2]) == (
        asked.topics(THERE), [*left.excluded], [*left.internal],
    )  # fmt: skip


@pytest.mark.parametrize(
    "asked", [TopicFilter(excluded=".*"), TopicFilter(pattern="p.*", excluded="p.*|x")]
)
def test_leaving_out_every_topic_is_refused(asked: TopicFilter) -> None:
    """The pattern is named, and what it matches."""
    with pytest.raises(ConfigurationError, match=r"topics\.exclude .* it matches .*payments"):
        asked.check_exclusion(THERE)


@pytest.mark.parametrize("asked", [
    TopicFilter(pattern="p.*", excluded="payments"), TopicFilter(pattern="q.*", excluded=".*"),
    TopicFilter(names=["orders"], excluded=".*"), TopicFilter(pattern="q.*"),
])  # fmt: skip
def test_a_pattern_is_to_blame_only_where_there_would_be_topics_without_it(
    asked: TopicFilter,
) -> None:
    """What was never there is another error."""
    asked.check_exclusion(THERE)


@pytest.mark.parametrize(("asked", "is_said"), [
    (TopicFilter(excluded="test[.].*"), True), (TopicFilter(pattern="o.*", excluded="order"), True),
    (TopicFilter(excluded="orders"), False), (TopicFilter(pattern="o.*", excluded="p.*"), False),
    (TopicFilter(names=["orders"], excluded="x"), False), (TopicFilter(), False),
])  # fmt: skip
def test_a_pattern_that_leaves_nothing_out_is_said(asked: TopicFilter, is_said: bool) -> None:
    """It may be misspelt; of names, the configuration has said it."""
    text = asked.idle_exclusion(asked.left_out(THERE))

    assert is_said == (text is not None and str(asked.excluded) in text)


def test_a_pattern_that_runs_away_is_stopped() -> None:
    """A second over one name is an error of the configuration, not a hanging run."""
    with pytest.raises(ConfigurationError, match="takes longer"):
        TopicFilter([], r"(a|aa)+\.").topics(["a" * 60 + "!"])


def test_a_pattern_that_is_slow_over_many_names_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What all names take together is bounded, over all calls, by an error of configuration."""
    monkeypatch.setattr("kbackup.java.regex.ALL_TIMEOUT", 0.3)
    names = [f"{'a' * 26}{at}!" for at in range(3000)]

    with pytest.raises(ConfigurationError, match="takes longer") as caught:
        [TopicFilter([], r"(a|aa)+\d+\.").topics([name]) for name in names]

    assert 2 == caught.value.exit_code
    assert re.search(r"s over \d+ names", caught.value.why)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (TopicFilter(names=["b", "a"], excluded="c"), ["b", "a"]),
        (TopicFilter(pattern="t.*"), ["t.*"]),
        (TopicFilter(pattern="t.*", excluded="t1.*"), ["t.*", "except t1.*"]),
        (TopicFilter(excluded="t1.*"), ["except t1.*"]),
        (TopicFilter(), []),
    ],
)
def test_what_is_left_out_is_a_part_of_the_selection(
    asked: TopicFilter, expected: list[str]
) -> None:
    """Runs that leave other topics out hold another lock, and vouch for themselves alone."""
    assert expected == asked.words
