"""Configurations that several tests start from."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kbackup.config import loading
from kbackup.errors import ConfigurationError

WHOLE = {"bootstrap_servers": "h:1", "topics": "orders", "s3_bucket_name": "b"}
JSON = "io.confluent.connect.s3.format.json.JsonFormat"
SINK = f"""
name=s3-sink
connector.class=io.confluent.connect.s3.S3SinkConnector
tasks.max=4
topics=orders
s3.bucket.name=backups
flush.size=3
storage.class=io.confluent.connect.s3.storage.S3Storage
format.class={JSON}
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
"""
"""A connector's file that this version can follow."""

Write = Callable[[str], Path]


def load(command: loading.Command, *paths: Path, **options: object) -> loading.Loaded:
    """Load files and options, and nothing from the environment."""
    return loading.load(command, options=options, files=paths, environ={})


def loaded(folder: Path, text: str, command: loading.Command = "sink") -> loading.Loaded:
    """Load a file of this text, to which the command line adds the brokers."""
    (path := folder / "given.properties").write_text(text)
    return load(command, path, bootstrap_servers="h:1")


def errors(command: loading.Command, *paths: Path, **options: object) -> dict[str, str]:
    """Property to reason of all that is wrong, which must be something."""
    with pytest.raises(ConfigurationError) as caught:
        load(command, *paths, **options)
    return {found["name"]: found["why"] for found in caught.value.place["errors"]}
