"""Object keys: what is written can be read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.errors import ObjectKeyError
from kbackup.naming import OFFSET_MAX, PARTITION_MAX, Layout, ObjectKey, View

topics = st.from_regex(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,60}", fullmatch=True)
segments = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1)

object_keys = st.builds(
    ObjectKey,
    topic=topics,
    partition=st.integers(0, PARTITION_MAX),
    start_offset=st.integers(0, OFFSET_MAX),
    encoded_partition=st.lists(segments.filter(lambda text: len(text.encode()) < 80), min_size=1,
                               max_size=3).map("/".join),
    extension=st.sampled_from([".avro", ".zstd.parquet", ".json.gz", ".bin"]),
    view=st.sampled_from(View),
)  # fmt: skip


@given(object_keys)
def test_parse_inverts_str(key: ObjectKey) -> None:
    """Every key that is written can be parsed."""
    assert key == Layout().parse(str(key))


@given(topics, st.integers(0, PARTITION_MAX), st.integers(0, OFFSET_MAX),
       st.sampled_from(["/", "_", "-", "::"]), st.sampled_from(["+", "-", "#", "__"]),
       st.integers(0, 25), st.sampled_from(["", "topics", "raw/kafka-archive"]))  # fmt: skip
def test_any_delimiters_and_width_either_parse_back_or_are_refused(
    topic: str, partition: int, offset: int, directory: str, file: str, width: int, folder: str
) -> None:
    """With delimiters that a topic may contain, a key that could be read two ways is refused."""
    layout = Layout(folder, directory, file, width)
    parts = ObjectKey(topic, partition, offset, f"partition={partition}", ".json", View.VALUE)

    try:
        key = layout.key(parts)
    except ObjectKeyError:
        return

    assert parts == layout.parse(key)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(ObjectKey("a/b", 0, 0, "p", ".json"), id="no topic"),
        pytest.param(ObjectKey("orders", 0, 0, "p", "json"), id="no extension"),
        pytest.param(ObjectKey("orders", 0, OFFSET_MAX + 1, "p", ".json"), id="no offset"),
        pytest.param(ObjectKey("orders", 0, 0, "é" * 500, ".json"), id="more bytes than S3 takes"),
    ],
)
def test_a_key_that_could_not_be_read_or_stored_is_not_made(parts: ObjectKey) -> None:
    """What is stored under a key can be found by it."""
    with pytest.raises(ObjectKeyError):
        str(parts)


@given(st.text(max_size=80))
def test_no_text_at_all_breaks_the_parser(text: str) -> None:
    """Any text in a listing is either a key of ours or an `ObjectKeyError`."""
    with pytest.raises(ObjectKeyError):
        Layout().parse(text)
