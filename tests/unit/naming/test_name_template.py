"""Object names by a template: read back, or refused."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.naming import (
    INDEX_EXTENSION,
    OFFSET_MAX,
    PARTITION_MAX,
    UPLOAD_DATE,
    ObjectKey,
    TemplateLayout,
    View,
    words_of,
)

TEMPLATES = [
    "{date}/{topic}-{partition}-{offset}",
    "{year}/{month}/{day}/{hour}/{topic}-{partition}-{offset}",
    "logs/{topic}/{partition}/{date}T{hour}-{minute}-{second}_{offset}",
    "{partition}-{topic}-at-{hour}+{offset}",
    "dt={date}/{topic}~{partition}~{offset}",
]


@given(
    st.from_regex(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,60}", fullmatch=True),
    st.integers(0, PARTITION_MAX), st.integers(0, OFFSET_MAX),
    st.datetimes(datetime(1970, 1, 1), timezones=st.just(UTC)),
    st.sampled_from([".gz", INDEX_EXTENSION]), st.sampled_from(["", "systest", "a/b"]),
    st.sampled_from(TEMPLATES), st.booleans(),
)  # fmt: skip
def test_names_are_read_back(
    topic: str, partition: int, offset: int, moment: datetime, extension: str, folder: str,
    template: str, is_dated: bool,
) -> None:  # fmt: skip
    """Whatever the topic, and however wide the numbers; a listing by day finds them."""
    layout = TemplateLayout(folder, file_delim="-", offset_width=12, template=template)
    directory = layout.upload(moment) if is_dated else UPLOAD_DATE
    parts = ObjectKey(topic, partition, offset, directory, extension, View.VALUE)

    key = layout.key(parts)

    assert parts == layout.parse(key)
    assert not is_dated or key.startswith(layout.day_prefix(moment.date(), topic, partition))
    day = layout.upload_day(layout.upload(moment))
    assert day == (moment.date() if "{date}" in template or "{day}" in template else None)


def test_times_are_in_utc() -> None:
    """The host's zone does not matter."""
    moment = datetime(2026, 3, 1, 0, 30, tzinfo=timezone(timedelta(hours=2)))

    layout = TemplateLayout(template="{date}/{hour}/{topic}-{partition}-{offset}")

    assert "2026-02-28/22" == layout.upload(moment)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{date}/{topic}-{partition}", "without {offset}"),
        ("{date}/{partition}-{offset}", "without {topic}"),
        ("{date}/{topic}-{offset}", "without {partition}"),
        ("{topic}-{partition}-{offset}", "no part of a time"),
        ("{date}/{topic}-{partition}-{offset}.gz", "does not end with"),
        ("{offset}-{date}/{topic}-{partition}", "does not end with"),
        ("{date}/{topic}{partition}-{offset}", "nothing stands between"),
        ("{date}/{topic}-{partition}0-{offset}", "it is not clear where each ends"),
        ("{date}/{topic}-{partition}-at{offset}", "ends with a letter"),
        ("{date}/{topic}.{partition}.{offset}", "another character"),
        ("{date}/{topic}-{topic}-{partition}-{offset}", "twice"),
        ("{week}/{topic}-{partition}-{offset}", "{week} is none of"),
        ("/{date}/{topic}-{partition}-{offset}", "segment is empty"),
        ("_kbackup/{date}/{topic}-{partition}-{offset}", "ledger"),
    ],
)
def test_what_could_not_be_read_back_is_refused(template: str, why: str) -> None:
    """The reason says which part of it is wrong."""
    with pytest.raises(ValueError, match=why):
        words_of(template)
