"""A sink before a ledger that a later version of kbackup has written."""

import io

import pytest

from kbackup.catalog.ledger.rows import OBJECTS, TOPICS
from kbackup.catalog.ledger.stream import encoded, parsed
from tests.support.bench import WHERE, Bench


@pytest.mark.parametrize("part", ["objects", "topics"])
@pytest.mark.parametrize("name", ["json", None], ids=["values", "full records"])
def test_what_a_later_version_has_written_ends_a_sink_before_it_stores_anything(
    part: str, name: str | None
) -> None:
    """Whichever half of the ledger it is: the next run with news says what to do.

    Where no kbackup has written it, a run goes on once it is moved away.
    """
    bench, late = Bench(45), list[str]()
    bench.sink(20, format_class=name)
    for one in list(bench.store.list("_kbackup/ledger/")):
        if f"/{part}/" in one.key:
            with bench.store.open(one.key) as body:
                rows, metadata = parsed(
                    one.key, body.read(), OBJECTS if part == "objects" else TOPICS
                )
            later = {
                **{key: text.decode() for key, text in metadata.items()},
                b"kbackup.ledger": "99",
                b"kbackup.version": "7.1",
            }
            data = encoded(rows, rows.schema, later)
            bench.store.put(one.key, io.BytesIO(data), sha256="", metadata={})
            late.append(one.key)
    before = bench.objects()
    bench.kafka.append(WHERE, 30)

    refused = bench.sink(20, format_class=name)

    assert 2 == refused["exit_code"]
    (error,) = refused["errors"]
    assert error["do"].startswith("use kbackup 7.1 or later; if no kbackup wrote it, move it away")
    assert error["what"].split()[0] in late
    assert before == bench.objects()

    for key in late:
        bench.store.delete(key)

    assert 0 == bench.sink(20, format_class=name)["exit_code"]
    assert len(before) < len(bench.objects())
