"""Restores of each layout and format, against the loop that produces the same records."""

from collections.abc import Iterator
from typing import Any, Final

from benchmarks.cases import BARE, Bench, kbackup
from benchmarks.records import Load, loads
from benchmarks.services import Services

Row = dict[str, Any]

_VALUES: Final = ("--flush-size", "100000", "--value-converter")
_HOIST: Final = "transforms.hoist"
_IN_A_STRUCT: Final = (
    "-X", "transforms=hoist",
    "-X", f"{_HOIST}.type=org.apache.kafka.connect.transforms.HoistField$Value",
    "-X", f"{_HOIST}.field=value",
)  # fmt: skip
"""A column of a Parquet file is a field: the text becomes one, and comes back as JSON."""

LAYOUTS: Final = {
    "full records, Parquet": (),
    "values, JSON": ("-f", "json", *_VALUES, "json"),
    "values, JSON with gzip": ("-f", "json", *_VALUES, "json", "--s3-compression-type", "gzip"),
    "values, bytes": ("-f", "bytes", *_VALUES, "bytes"),
    "values, Avro": ("-f", "avro", *_VALUES, "string"),
    "values, Parquet": ("-f", "parquet", *_VALUES, "string", *_IN_A_STRUCT),
}
"""The options of the sink that stores a layout, by name."""

_READING: Final = ("-f", "--value-converter")
"""Those that the restore needs too."""

_STORE: Final = "dir"


def measured(services: Services, scale: float) -> Iterator[Row]:
    """Back up 1 GB, times *scale*, in each layout, and yield a row for the restore of each.

    The first row is the loop's; the others say which share of its rate they reach.
    """
    load = loads(scale)[-1]
    bench = Bench(services)
    loop = next(case for case in bench.cases(load) if case.name == BARE["write"]).run()
    yield {"layout": BARE["write"], **loop}
    load = Load(f"{load.name}-formats", load.value_bytes, load.records)
    services.fill(load)
    for name, options in LAYOUTS.items():
        found = _restored(services, load, options)
        ratio = round(found["records_per_s"] / loop["records_per_s"], 3)
        yield {"layout": name, **found, "ratio": ratio}
    services.delete_topic(load.topic)


def _restored(services: Services, load: Load, options: tuple[str, ...]) -> Row:
    place = services.fresh_place(_STORE)
    reading = [
        word
        for name, value in zip(options[::2], options[1::2], strict=True)
        if name in _READING
        for word in (name, "json" if value == "string" and "parquet" in options else value)
    ]
    kbackup(services, ["sink", "run", "-t", load.topic, *options], load, place)
    words = ["restore", "run", "--rename", "restored-$0", *reading]
    found = kbackup(services, words, load, place)
    services.delete_topic(f"restored-{load.topic}")
    services.empty(place)
    return found
