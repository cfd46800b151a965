"""Read a backup of full records without kbackup: its objects are Parquet files.

    python read_with_pyarrow.py FOLDER TOPIC        a backup in a local folder
    python read_with_pyarrow.py s3://BUCKET TOPIC   one in S3, credentials as usual

Prints the number of records, where each partition ends, records per hour, and a few values.
"""

import sys
from collections.abc import Iterator
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs


def files(place: str, topic: str) -> Iterator[tuple[int, fs.FileSystem, str]]:
    """Yield partition, file system and path of each object, in offset order."""
    if place.startswith("s3://"):
        system, root = fs.FileSystem.from_uri(place)
    else:
        system, root = fs.LocalFileSystem(), place
    found = []
    for entry in system.get_file_info(fs.FileSelector(f"{root}/topics/{topic}", recursive=True)):
        name, dot, extension = entry.base_name.partition(".record.")
        if dot and extension.endswith("parquet"):
            _, partition, offset = name.rsplit("+", 2)
            found.append((int(partition), int(offset), entry.path))
    for partition, _, path in sorted(found):
        yield partition, system, path


def read(place: str, topic: str) -> pa.Table:
    """Return all records of *topic*, with their partition."""
    parts = []
    for partition, system, path in files(place, topic):
        table = ds.dataset(path, filesystem=system, format="parquet").to_table()
        parts.append(table.append_column("partition", pa.array([partition] * len(table), "int32")))
    if not parts:
        refuse(f"error: there are no full records of {topic} under {place}/topics")
    return pa.concat_tables(parts)


def refuse(text: str) -> NoReturn:
    """Print what is wrong, and exit 2."""
    print(text, file=sys.stderr)
    sys.exit(2)


def main() -> None:
    """Print a summary of the backup."""
    if len(sys.argv) != 3:
        refuse("usage: python read_with_pyarrow.py FOLDER|s3://BUCKET TOPIC")
    place, topic = sys.argv[1:]
    try:
        records = read(place, topic)
    except (OSError, pa.ArrowInvalid) as error:  # missing, unreadable, or not Parquet
        refuse(f"error: {topic} cannot be read under {place}: {error}")
    print(f"{len(records)} records of {topic}")
    print(f"{records['value'].null_count} tombstones, {records['key'].null_count} null keys")
    for row in records.group_by("partition").aggregate([("offset", "max")]).to_pylist():
        print(f"partition {row['partition']} ends at offset {row['offset_max'] + 1}")
    stamped = records.filter(pc.not_equal(records["timestamp"], -1))  # -1: Kafka has none
    hours = pc.floor_temporal(stamped["timestamp"].cast(pa.timestamp("ms", "UTC")), unit="hour")
    for hour in sorted(hours.value_counts().to_pylist(), key=lambda each: each["values"])[:5]:
        print(f"{hour['values']:%Y-%m-%d %H:00} {hour['counts']} records")
    for row in records.slice(0, 3).to_pylist():
        headers = [(header["key"], header["value"]) for header in row["headers"]]
        print(row["partition"], row["offset"], row["key"], headers, row["value"])


if __name__ == "__main__":
    main()
