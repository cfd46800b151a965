"""A configuration as it is shown: origins, and no secrets."""

import pytest

from kbackup import config
from kbackup.config import loading
from kbackup.errors import ConfigurationError
from tests.support.configurations import SINK, WHOLE, Write, load

CANARY = "Xq7-canary"


SECRETS = f"""
aws.access.key.id={CANARY}1
aws.secret.access.key={CANARY}2
sasl.password={CANARY}3
sasl.jaas.config=x.PlainLoginModule required username=u password={CANARY}4;
ssl.key.password={CANARY}5
consumer.override.sasl.jaas.config=x.ScramLoginModule required username=u password={CANARY}6;
value.converter.basic.auth.user.info=u:{CANARY}7
value.converter.schema.registry.url=http://u:{CANARY}8@h
schema.registry.basic.auth.user.info=u:{CANARY}11
schema.registry.ssl.key.password={CANARY}12
spark.conf=spark.hadoop.fs.s3a.secret.key={CANARY}9
"""


WRONG = f"""
schema.registry.basic.auth.info=u:{CANARY}
schema.registry.url=http://u:{CANARY}@h
store.url=http://u:{CANARY}@h
s3.proxy.password={CANARY}
s3.proxy.url=http://u:{CANARY}@p
s3.sse.customer.key={CANARY}
kafka.api.secret={CANARY}
aws.secret.key={CANARY}
ssl.truststore.password={CANARY}
"""


def test_no_secret_is_shown(write: Write) -> None:
    """Settings can be printed, listed and doubted without giving a credential away."""
    loaded = load("sink", write(SECRETS), **WHOLE)

    printed = f"{loaded!r}{loaded.shown()}{loaded.shown(True)}{loaded.warnings}"
    assert CANARY not in printed
    assert ("aws.secret.access.key", "********") in [row[:2] for row in loaded.shown()]


def test_no_secret_is_in_an_error(write: Write) -> None:
    """A wrong setting is named without its secret."""
    path = write(SECRETS + WRONG)

    with pytest.raises(ConfigurationError) as caught:
        load("sink", path, **WHOLE, flush_size="x")

    assert len(caught.value.place["errors"]) > 3
    assert CANARY not in f"{caught.value}{caught.value.issue()}{loading.check([path], {}).issues}"


@pytest.mark.parametrize(
    ("name", "value"),
    [("directory.delim", "/"), ("group", "connect-s3-sink"), ("kafka.timeout", "10s")],
)
def test_what_nobody_gave_is_shown_as_a_default(write: Write, name: str, value: str) -> None:
    """What follows from other values too; times have their unit."""
    loaded = load("sink", write(SINK), bootstrap_servers="h:1")

    assert (name, value, "default") in loaded.shown(all=True)


def test_all_properties_are_shown() -> None:
    """``config show --all`` leaves none out."""
    rows = load("config").shown(all=True)

    assert [found.name for found in config.PROPERTIES] == [row[0] for row in rows]


def test_variables_that_choose_records_are_named() -> None:
    """Those of topics, times and offsets are, also without a value in a file; others are not."""
    environ = {"KBACKUP_TO_TIME": "2026-11-21", "KBACKUP_KAFKA_TIMEOUT": "9s"}
    loaded = loading.load(
        "restore", options={**WHOLE, "from_offset": "3"}, files=(), environ=environ
    )

    assert ["KBACKUP_TO_TIME"] == [*loaded.narrowing]
