"""A restore of objects that no sink has named: ``mode=GENERIC``."""

import gzip
import io
import json
from dataclasses import dataclass, replace
from decimal import Decimal
from hashlib import sha256
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backup_samples import JSON

from kbackup import config
from kbackup.catalog import listing
from kbackup.errors import CorruptObjectError, RefusedError
from kbackup.naming import Layout
from kbackup.records import TopicPartition
from kbackup.restore.watch import Ready
from kbackup.runs import wiring
from kbackup.runs.backup_state import NOTHING
from tests.support.target import CrashError, Restoring

LINES = b'{"n":1}\n{"n":2}\n'


@dataclass
class Generic(Restoring):
    """Restores of objects below ``logs/``, by expressions."""

    expressions: str = "clicks:logs/.*"

    def __post_init__(self) -> None:
        self.properties = {
            "mode": "GENERIC", "topics.dir": "logs", "topic.regex.list": self.expressions,
            **self.properties,
        }  # fmt: skip
        self.backup = replace(self.backup, layout=wiring.layout(self.settings()))

    def settings(self, **options: Any) -> config.Settings:
        """What a restore goes by; topics keep their names."""
        return super().settings(**{"rename": None, **options})

    def put(self, objects: dict[str, bytes]) -> None:
        """Store objects as any tool would."""
        for name, data in objects.items():
            digest = sha256(data).hexdigest()
            self.store.put(f"logs/{name}", io.BytesIO(data), sha256=digest, metadata={})

    def run(self, **how: Any) -> None:
        """Restore, reading as the configuration says."""
        self.restore(reading=wiring.reading(self.settings()), **how)

    def listed(self) -> listing.Catalog:
        """What the listing comes to."""
        settings = self.settings()
        options = wiring.format_options(settings)
        return listing.list_backup(
            self.store, wiring.layout(settings), options, only_format=settings.format_class
        )


def test_a_format_that_lacks_an_option_is_found_by_the_plan() -> None:
    """Nothing is restored before the option is given that the format of an object needs."""
    lacking = Generic()
    lacking.put({"1.fixed": b"onetwo"})
    given = Generic(lacking.backup, properties={"fixed.width": "3"})

    (refused,) = lacking.plan().topics[0].refusals
    given.run()

    assert ("fixed.width", 2) == (refused.place["property"], refused.exit_code)
    assert refused.what == "clicks: logs/1.fixed cannot be read: fixed.width is not set"
    assert () == given.plan().topics[0].refusals
    assert [b"one", b"two"] == given.cluster.values("clicks")


@pytest.mark.parametrize("crash_at", [2, 3])
def test_a_restore_that_died_continues_without_a_gap_or_a_repetition(crash_at: int) -> None:
    """The position is the key of an object and the rows of it that are done."""
    restoring = Generic()
    bodies = {f"{at}.json": b"%d\n%d\n" % (2 * at, 2 * at + 1) for at in range(3)}
    restoring.put(bodies | {"1.json": b'{"broken'})
    with pytest.raises((CrashError, CorruptObjectError)):
        restoring.run(crash_at=crash_at)
    restoring.put({"1.json": bodies["1.json"]})

    restoring.run(run="r2")
    restoring.run(run="r3")

    assert [b"%d" % at for at in range(6)] == restoring.cluster.values("clicks")


def test_a_repeated_run_takes_the_objects_that_sort_after_the_last_one() -> None:
    """Objects whose names grow with time are restored once each, however often the command runs."""
    restoring = Generic()
    restoring.put({"1.json": b"1\n"})
    restoring.run()
    restoring.put({"2.json": b"2\n"})

    restoring.run(run="r2")

    assert [b"1", b"2"] == restoring.cluster.values("clicks")


@pytest.mark.parametrize(
    "late",
    [
        pytest.param({"0.json": b"0\n"}, id="a new object sorts before"),
        pytest.param({"1.json": b"1\n1\n"}, id="an object that was passed has changed"),
        pytest.param({"1.json": b"9\n"}, id="an object that was passed has the same size"),
    ],
)
def test_what_comes_before_the_position_is_refused_and_not_overlooked(
    late: dict[str, bytes],
) -> None:
    """A record that can no longer be restored in its place is a refusal that names the loss."""
    restoring = Generic()
    restoring.put({"1.json": b"1\n", "2.json": b"2\n"})
    restoring.run()
    restoring.put(late)

    with pytest.raises(RefusedError, match="were added, changed or removed"):
        restoring.run(run="r2")

    assert [b"1", b"2"] == restoring.cluster.values("clicks")


@pytest.mark.parametrize(
    ("now", "why"),
    [
        pytest.param(b"1\n", "it holds 1 record, and 2 were restored", id="shorter"),
        pytest.param(b"1\n3\n", "the first 2 records in it are others", id="of the same size"),
        pytest.param(b"1\n3\n2\n", "the first 2 records in it are others", id="longer"),
        pytest.param(b"12\n\n3\n", "the first 2 records in it are others", id="cut elsewhere"),
    ],
)
def test_a_last_object_that_was_replaced_is_refused(now: bytes, why: str) -> None:
    """Rows are counted, so others in the place of those that were restored would be overlooked."""
    restoring = Generic(properties={"format.class": "bytes"})
    restoring.put({"1.bin": b"1\n2\n"})
    restoring.run(yes_split_on_newline=True)
    restoring.put({"1.bin": now})

    with pytest.raises(RefusedError, match=why):
        restoring.run(run="r2", yes_split_on_newline=True)

    assert [b"1", b"2"] == restoring.cluster.values("clicks")


@pytest.mark.parametrize("crash_at", [0, 2], ids=["at its end", "within it"])
def test_a_last_object_that_grew_is_continued(crash_at: int) -> None:
    """What was restored of it is the same, however the rows arrive in batches."""
    restoring = Generic()
    many = [b'{"n":%d,"text":"%s"}' % (at, b"x" * (at % 7)) for at in range(120_000)]
    restoring.put({"1.json": b"\n".join(many[:70_000]) + b"\n"})
    if crash_at:
        with pytest.raises(CrashError):
            restoring.run(crash_at=crash_at)
    else:
        restoring.run()
    restoring.put({"1.json": b"\n".join(many) + b"\n"})

    restoring.run(run="r2")

    assert many == restoring.cluster.values("clicks")


def test_the_first_expression_that_matches_counts_and_the_rest_is_left_out() -> None:
    """What no expression matches is counted, and is no reason to look; our own records are none."""
    restoring = Generic(expressions=r"errors:logs/.*err.*,clicks:logs/a{1,3}.*")
    restoring.put(
        {"a.err.json": b"1\n", "aa.json": b"2\n", "z.json": b"3\n", "empty.err.json": b""}
    )
    digest = sha256(b"{}").hexdigest()
    for key in ("_kbackup/runs/err.json", "logs/err/"):
        restoring.store.put(key, io.BytesIO(b"{}"), sha256=digest, metadata={})

    found = restoring.listed()
    restoring.run()

    assert (["clicks", "errors"], 2, 0) == (found.topics(), found.unmatched, found.foreign_count)
    assert [b"1"] == restoring.cluster.values("errors")
    assert [b"2"] == restoring.cluster.values("clicks")


def test_a_format_that_is_named_reads_what_has_no_extension_of_its_own() -> None:
    """``format.class`` reads names that say nothing."""
    restoring = Generic(properties={"format.class": "json"})
    restoring.put({"1.log": b"1\n", "2": b"2", "3.gz": gzip.compress(b"3\n"), "4.avro": b"Obj"})

    found = restoring.listed()
    restoring.run()

    assert [b"1", b"2", b"3"] == restoring.cluster.values("clicks")
    assert 1 == found.ignored


def test_a_compressed_object_of_nothing_holds_no_record() -> None:
    """A tool that rotates its files has some without a line: they hold up nothing."""
    restoring = Generic()
    restoring.put({"1.json.gz": gzip.compress(b""), "2.json": b"2\n"})

    restoring.run()

    assert [b"2"] == restoring.cluster.values("clicks")


def test_an_object_that_no_format_reads_is_named() -> None:
    """A matched object that no format reads is named and counted as skipped."""
    restoring = Generic()
    restoring.put({"1.json": b"1\n", "2.log": b"2\n"})

    found = restoring.listed()

    assert [("logs/2.log", "no format reads .log: set format.class")] == found.foreign


def test_headers_describe_the_object() -> None:
    """With ``file.metadata.headers.enable`` each record says which object it comes from."""
    restoring = Generic(properties={"file.metadata.headers.enable": "true"})
    restoring.put({"day/1.json": LINES})

    restoring.run()

    rows = restoring.cluster.logs[TopicPartition("clicks", 0)].rows[:2]
    for row in rows:
        headers = {each["key"]: each["value"] for each in row["headers"]}
        assert {"file.name": b"1.json", "file.path": b"logs/day/1.json", "file.length": b"16"} == {
            name: headers[name] for name in ("file.name", "file.path", "file.length")
        }
        assert headers["file.last.modified"].endswith(b"Z")


def test_objects_of_a_sink_can_be_read_as_any_others() -> None:
    """What such an object says of its topic and offsets is about another place."""
    restoring = Generic(expressions="clicks:topics/.*", properties={"topics.dir": "topics"})
    sinks = replace(restoring.backup, layout=Layout("topics"))
    sinks.put("orders", 3, range(5, 8), views=JSON)

    restoring.run()

    assert [b'{"n":%d}' % at for at in (5, 6, 7)] == restoring.cluster.values("clicks")


def test_a_line_that_is_no_json_stops_the_restore_before_its_object() -> None:
    """A damaged object is named, and none of its rows is written."""
    restoring = Generic()
    restoring.put({"1.json": b"1\n", "2.json": b"2\n{broken\n"})

    with pytest.raises(CorruptObjectError, match=r"logs/2\.json"):
        restoring.run()

    assert [b"1"] == restoring.cluster.values("clicks")


def test_a_restore_that_follows_takes_all_before_the_first_object_that_still_changes() -> None:
    """New objects wait until two listings show them alike, and keep back what sorts after."""
    restoring, ready = Generic(), Ready(10)
    restoring.put({"1.json": b"1\n", "3.json": b"3\n"})
    ready.take(["clicks"], restoring.listed(), NOTHING, 0)
    restoring.put({"2.json": b"2\n"})

    early = ready.take(["clicks"], restoring.listed(), NOTHING, 10)
    late = ready.take(["clicks"], restoring.listed(), NOTHING, 20)

    where = TopicPartition("clicks", 0)
    assert ["logs/1.json"] == [files.id for files in early.sets[where]]
    assert ["logs/1.json", "logs/2.json", "logs/3.json"] == [files.id for files in late.sets[where]]


def test_the_rows_of_a_csv_file_become_objects() -> None:
    """By default their fields are text, named as in the first row."""
    restoring = Generic()
    restoring.put({"1.csv": b"a,b\n1,x\n", "2.csv.gz": gzip.compress(b"c\n\n3")})

    restoring.run()

    assert [b'{"a":"1","b":"x"}', b'{"c":"3"}'] == restoring.cluster.values("clicks")


def test_rows_of_other_tools_become_json() -> None:
    """Parquet and Avro files that no connector has written are read by the types they declare."""
    restoring = Generic()
    parquet, avro = io.BytesIO(), io.BytesIO()
    pq.write_table(pa.table({"id": [1], "name": pa.array([None], pa.string())}), parquet)
    field = {"name": "a", "type": "int"}
    fastavro.writer(avro, {"type": "record", "name": "r", "fields": [field]}, [{"a": 1}])
    restoring.put({"1.parquet": parquet.getvalue(), "2.avro": avro.getvalue()})

    restoring.run()

    assert [b'{"id":1,"name":null}', b'{"a":1}'] == restoring.cluster.values("clicks")


def test_records_of_other_tools_are_chosen_by_their_times() -> None:
    """Where a field says when a record was written, --from-time and --to-time go by it."""
    fields = {"record.fields": "value=v,timestamp=t", "record.encoding": "text"}
    restoring = Generic(properties=fields)
    lines = [b'{"v":"%d","t":%d}' % (at, 1_000 + at) for at in range(5)]
    restoring.put({"1.json": b"\n".join(lines)})

    restoring.run(from_time="1970-01-01T00:00:01.001Z", to_time="1970-01-01T00:00:01.003Z")

    assert [b"1", b"2"] == restoring.cluster.values("clicks")


def test_times_and_decimals_of_other_tools_parquet_are_read() -> None:
    """Times that are not Connect's are numbers of their own unit."""
    made = io.BytesIO()
    table = {
        "local": pa.array([1000, None], pa.timestamp("ms")),
        "micros": pa.array([1, None], pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
        "day": pa.array([[1, None], None], pa.list_(pa.time64("us"))),
        "prices": pa.array([[("a", Decimal("1.5"))], None],
                           pa.map_(pa.string(), pa.decimal128(3, 1))),
        "kind": pa.array(["a", None]).dictionary_encode(),
        "size": pa.array([2**32 - 1, None], pa.uint32()),
    }  # fmt: skip
    pq.write_table(pa.table(table), made)
    restoring = Generic()
    restoring.put({"1.parquet": made.getvalue()})

    restoring.run()

    assert [
        {
            "local": 1000,
            "micros": 1,
            "price": "AJY=",
            "day": [1, None],
            "prices": {"a": "Dw=="},
            "kind": "a",
            "size": 2**32 - 1,
        },
        dict.fromkeys(table),
    ] == [json.loads(value or b"") for value in restoring.cluster.values("clicks")]
