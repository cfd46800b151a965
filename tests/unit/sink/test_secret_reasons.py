"""A reason that quotes a record, in an encrypted backup: nobody reads it in bucket or log."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbackup.errors import BadRecordError
from kbackup.stores import Store, StoreSettings, open_store
from tests.support.fake_kafka import FakeKafka
from tests.support.hand_clock import HandClock
from tests.support.sinks import run_sink
from tests.support.target import Restoring
from tests.unit.catalog.test_keys import private_key, sinks
from tests.unit.restore.test_transforms import cut

CANARY = "CANARY-7c1f"
CAST = {
    "transforms": "cast",
    "transforms.cast.type": "org.apache.kafka.connect.transforms.Cast$Value",
    "transforms.cast.spec": "card:int32",
    "value.converter": "json",
}


@pytest.mark.parametrize("tolerance", ["none", "all"])
@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "encrypted"])
def test_a_sink_says_what_is_wrong_and_quotes_nothing(
    tmp_path: Path, is_encrypted: bool, tolerance: str
) -> None:
    """Not in run records, which are not encrypted; dead letters, in Kafka, have all of it."""
    kafka, place, told = FakeKafka(), StoreSettings(f"memory://{tmp_path.name}"), list[Any]()
    (where,) = kafka.create("orders", 3)
    kafka.create("letters", 0)
    kafka.values = {(where, at): b'{"card":"%s"}' % CANARY.encode() for at in range(3)}
    path = tmp_path / "sink.properties"
    dead = {"errors.tolerance": tolerance, "errors.deadletterqueue.topic.name": "letters",
            "errors.deadletterqueue.context.headers.enable": "true"}  # fmt: skip
    path.write_text("".join(f"{name}={text}\n" for name, text in (CAST | dead).items()))
    there = replace(place, wrapper=sinks(tmp_path, private_key(tmp_path / "one")))

    done = run_sink(
        kafka, there if is_encrypted else place, path, clock=HandClock(), told=told,
        topics="orders", format_class="json", flush_size=9,
    )  # fmt: skip

    store = open_store(place)
    seen = [str(told), str(done), *(store.open(one.key).read() for one in store.list(""))]
    assert is_encrypted != any(CANARY in str(each) for each in seen)
    assert "orders-0 offset 0: the transform cast cannot be applied to a record" in str(done)
    context = [str(header["value"]) for _, row in kafka.letters for header in row["headers"]]
    assert (tolerance == "all") == any(f"'{CANARY}' is not an int32" in text for text in context)


class Around:
    """What stands around a store whose objects are encrypted elsewhere."""

    def wrap(self, store: Store) -> Store:
        """Return the same."""
        return store


@pytest.mark.parametrize("on_error", ["fail", "ignore"])
def test_a_restore_quotes_nothing(on_error: str) -> None:
    """Its run record lies in the bucket too."""
    found = Restoring(properties=CAST)
    found.backup.put("orders", 0, cut((0, b'{"card":"%s"}' % CANARY.encode(), False)))
    found.backup.settings = replace(found.backup.settings, wrapper=Around())

    try:
        said = str(found.restore(on_error=on_error))
    except BadRecordError as error:
        said = str(error)

    assert (False, True) == (CANARY in said, "the transform cast cannot be applied" in said)
