"""Batches come as a leader sends them, whatever happens to it, and errors are today's."""

import base64
import socket
import ssl
import threading
import time
from collections.abc import Generator
from contextlib import closing
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from kbackup.batches import CONTROL, DELETE_HORIZON, TRANSACTIONAL, walk
from kbackup.batches import native as batches_native
from kbackup.batches.decoding import decoded
from kbackup.errors import ConfigurationError, KafkaError, KbackupError, TopicChangedError
from kbackup.kafka import KafkaSettings, LogStartMovedError, brokers, fetch, reader, wire
from kbackup.kafka.brokers import Aborted, address_of, committed
from kbackup.kafka.fetch import BatchReader
from kbackup.kafka.wire import (
    Api,
    BrokerConnection,
    LostError,
    NoAccessError,
    Security,
    scram,
    unspoken,
)
from kbackup.records import Span, TopicPartition
from tests.support.encoded import Sent, batch, record, sealed
from tests.support.fake_broker import (
    END_OF_EPOCH,
    LOST,
    OFFERED,
    Answer,
    FakeBroker,
)
from tests.support.recorded import offered

WHERE = TopicPartition("t", 0)
ONE, TWO = batch(0, [Sent(b"a"), Sent(b"b")]), batch(2, [Sent(b"c"), Sent(b"d")], 4)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again without a pause."""
    monkeypatch.setattr(fetch, "_PAUSES_S", (0.0, 0.0))


def opened(broker: FakeBroker, **consumer: str) -> closing[BatchReader]:
    """A reader of what it leads."""
    given = {name.replace("_", "."): value for name, value in consumer.items()}
    return closing(BatchReader(KafkaSettings(broker.servers, consumer=given)))


def bytes_of(broker: FakeBroker, start: int = 0, end: int = 4, **consumer: str) -> bytes:
    """What is read of a span, as the broker sent it."""
    with opened(broker, **consumer) as reading:
        found = reading.batches(WHERE, Span(start, end))
        return b"".join(bytes(piece) for some in found for piece in some.pieces())


@pytest.mark.parametrize(
    ("versions", "topic"),
    [
        pytest.param(offered("4.1.1"), b"i" * 16, id="4.1"),
        pytest.param(offered("3.3.2"), b"i" * 16, id="3.3"),
        pytest.param(offered("2.8.2"), b"t", id="2.8"),
        pytest.param(offered("2.3.1"), b"t", id="2.3"),
        pytest.param({**OFFERED, END_OF_EPOCH: (0, 2)}, b"i" * 16, id="epochs not asked for"),
    ],
)
def test_a_broker_is_asked_in_a_version_that_it_speaks(
    versions: dict[int, tuple[int, int]], topic: bytes
) -> None:
    """Old brokers are asked by the topic's name, new ones by its id, all with a leader's epoch."""
    with FakeBroker([Answer(ONE, 4), Answer(TWO, 4)], versions=versions) as broker:
        found = bytes_of(broker)

    assert ONE + TWO == found
    assert [(topic, 5, 0, -1), (topic, 5, 2, -1)] == [
        (each.topic, each.epoch, each.offset, each.read_epoch) for each in broker.fetches
    ]


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(Answer(error=3), id="unknown topic or partition"),
        pytest.param(Answer(error=6), id="not the leader"),
        pytest.param(Answer(error=74), id="fenced leader epoch"),
        pytest.param(Answer(error=75), id="unknown leader epoch"),
        pytest.param(Answer(error=78), id="offset not available"),
        pytest.param(Answer(error=100), id="unknown topic id"),
        pytest.param(LOST, id="lost"),
    ],
)
def test_a_new_leader_is_looked_up(failure: Answer) -> None:
    """Whoever leads next goes on at the same offset, and is asked whether it has what was read."""
    with FakeBroker([Answer(ONE, 4), failure, failure, Answer(TWO, 4)]) as broker:
        found = bytes_of(broker)

    assert ONE + TWO == found
    assert [(5, 0, -1), (5, 2, -1), (6, 2, 0), (7, 2, 0)] == [
        (each.epoch, each.offset, each.read_epoch) for each in broker.fetches
    ]


@pytest.mark.parametrize("name", ["a..b", "x" * 64 + ".y", "nowhere.invalid"])
def test_a_server_whose_name_can_be_none_is_passed_over(name: str) -> None:
    """Of several bootstrap servers the first one that can be reached tells who leads."""
    with FakeBroker([Answer(ONE + TWO, 4)]) as broker:
        settings = KafkaSettings(f"{name}:9092,{broker.servers}")
        with closing(BatchReader(settings)) as opened:
            found = [*opened.batches(WHERE, Span(0, 4))]

    assert [0, 2] == [base for some in found for base in some.headers["base_offset"].to_pylist()]


def test_a_new_leader_that_lacks_what_was_read_is_said() -> None:
    """A log that was cut back before the next offset is a changed topic."""
    answers = [Answer(ONE, 4), Answer(error=6), Answer(stable=4, diverged=1)]
    with FakeBroker(answers) as broker, pytest.raises(TopicChangedError, match="ends at offset 1"):
        bytes_of(broker)


@pytest.mark.parametrize("end", [-1, 1, 2, 9])
def test_an_older_leader_is_asked_where_what_was_read_ends(end: int) -> None:
    """Fetches before topics had ids do not say where a new leader's log parts from the old."""
    answers = [Answer(ONE, 4), Answer(error=6), Answer(TWO, 4)]
    with FakeBroker(answers, versions=offered("2.3.1"), end_of_epoch=end) as broker:
        if end == 1:
            with pytest.raises(TopicChangedError, match="ends at offset 1"):
                bytes_of(broker)
        else:
            assert ONE + TWO == bytes_of(broker)


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(LOST, id="lost"),
        pytest.param(Answer(error=1), id="it has less than the leader"),
        pytest.param(Answer(error=74), id="it knows another leader"),
        pytest.param(Answer(stable=2), id="it lags behind"),
    ],
)
def test_a_replica_that_is_nearer_is_read_until_it_fails(failure: Answer) -> None:
    """The leader names it, and goes on by itself for a while when it cannot be read."""
    three = batch(4, [Sent(b"e")])
    with FakeBroker([Answer(ONE, 4, nearer=-1), failure]) as near:
        near.epoch = 99  # nobody asks it who leads
        answers = [Answer(stable=5, nearer=2), Answer(TWO + three, 5)]
        with FakeBroker(answers, other=near.port) as broker:
            read = bytes_of(broker, 0, 5, client_rack="a")

    assert ONE + TWO + three == read
    assert [(b"a", 0), (b"", 2)] == [(each.rack, each.offset) for each in broker.fetches]
    assert [(b"a", 0), (b"a", 2)] == [(each.rack, each.offset) for each in near.fetches[:2]]


def test_a_replica_at_a_broker_that_is_not_known_is_not_waited_for() -> None:
    """The leader is asked once more, as one without replicas that are nearer."""
    with FakeBroker([Answer(stable=4, nearer=7), Answer(ONE + TWO, 4)]) as broker:
        assert ONE + TWO == bytes_of(broker, client_rack="a")

    assert [b"a", b""] == [each.rack for each in broker.fetches]


def test_a_topic_that_was_created_again_is_said() -> None:
    """Another topic of the same name is not read on."""
    answers = [Answer(ONE, 4), Answer(error=100), Answer(TWO, 4)]
    with (
        FakeBroker(answers, ids=[b"i" * 16, b"j" * 16]) as broker,
        pytest.raises(TopicChangedError, match="created again"),
    ):
        bytes_of(broker)


@pytest.mark.parametrize(
    ("answer", "kind", "why"),
    [
        pytest.param(Answer(error=1), LogStartMovedError, "no longer has", id="expired"),
        pytest.param(Answer(error=29), KafkaError, "authorization failed", id="denied"),
        pytest.param(Answer(ONE[:-1] + b"!", 4), KafkaError, "CRC32C", id="altered"),
        pytest.param(Answer(ONE[:-1], 4), KafkaError, "cut short", id="less than a batch"),
        pytest.param(
            Answer(ONE[:16] + b"\1" + ONE[17:], 4), ConfigurationError, "older than version 2",
            id="old",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_an_error(
    answer: Answer, kind: type[KbackupError], why: str
) -> None:
    """What asking again does not help is an error at once, in the broker's words."""
    with FakeBroker([answer]) as broker, pytest.raises(kind, match=why):
        bytes_of(broker)


def test_silence_ends_within_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that nobody leads for long is an error with the broker's reason."""
    monkeypatch.setattr(brokers, "patience_s", lambda *_: 0.05)
    with FakeBroker([Answer(error=5)]) as broker, pytest.raises(KafkaError, match="no answer"):
        bytes_of(broker)


def test_time_that_the_caller_takes_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever stores for long between two batches finds the broker's patience unused."""
    monkeypatch.setattr(brokers, "patience_s", lambda *_: 0.1)
    with (
        FakeBroker([Answer(ONE, 4), LOST, Answer(TWO, 4)]) as broker,
        opened(broker) as reading,
    ):
        found = reading.batches(WHERE, Span(0, 4))
        first = next(found)
        time.sleep(0.2)
        rest = list(found)

    assert [0, 2] == [each.headers["base_offset"][0].as_py() for each in (first, *rest)]


def test_an_empty_answer_is_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last stable offset says where a log ends: tiered storage may answer late."""
    monkeypatch.setattr(reader, "CAUGHT_UP_S", -1.0)
    with FakeBroker([Answer(stable=4), Answer(ONE, 4), Answer(stable=4), Answer(TWO, 4)]) as broker:
        assert ONE + TWO == bytes_of(broker)


def test_a_throttled_client_waits() -> None:
    """A broker that asks for a pause gets it before the next request."""
    answers = [Answer(ONE, 4, throttle_ms=150), Answer(throttle_ms=150), Answer(TWO, 4)]
    with FakeBroker(answers) as broker:
        assert ONE + TWO == bytes_of(broker)

    assert 3 == len(broker.fetches)
    assert all(then.at - one.at >= 0.15 for one, then in pairwise(broker.fetches))
    assert [5, 5, 5] == [each.epoch for each in broker.fetches]


def test_a_quota_that_lets_nothing_through_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such answers have no partition in them."""
    monkeypatch.setattr(brokers, "patience_s", lambda *_: 0.05)
    answers = [Answer(throttle_ms=100)] * 9
    with FakeBroker(answers) as broker, pytest.raises(KafkaError, match="a quota of the broker's"):
        bytes_of(broker)


def test_a_start_within_a_batch_cuts_it_and_no_other() -> None:
    """Of the first batch there is what was asked for; all others are as they were sent."""
    with FakeBroker([Answer(ONE + TWO, 4)]) as broker:
        found = walk(pa.py_buffer(bytes_of(broker, 1))).check()

    assert [1, 2] == found.headers["base_offset"].to_pylist()
    assert TWO == b"".join(found.slice(1).pieces())


LATER = batch(1, [Sent(b"b"), Sent(b"c"), Sent(b"d")])


def test_records_come_once_where_batches_have_other_bounds() -> None:
    """A log may have been written anew between two answers: what was read is not read again."""
    found = []
    for by_records in (False, True):
        answers = [Answer(ONE, 4), Answer(LATER, 4)]
        with FakeBroker(answers) as broker, opened(broker) as reading:
            if by_records:
                rows = [*reading.read(WHERE, Span(0, 4))]
            else:
                rows = [row for b in reading.batches(WHERE, Span(0, 4)) for row in decoded(b)]
        found.append(pa.Table.from_batches(rows)["offset"].to_pylist())

    assert [[0, 1, 2, 3]] * 2 == found


def test_a_broker_that_sends_what_was_read_before_is_not_asked_for_ever() -> None:
    """It counts as an answer without batches."""
    with FakeBroker([Answer(ONE, 4)]) as broker, opened(broker) as reading:
        reading.brokers.patience_s = 0.2
        with pytest.raises(KafkaError, match="t-0 offset 2: no answer"):
            list(reading.batches(WHERE, Span(0, 4)))


def test_batches_beyond_the_span_are_left_out() -> None:
    """What begins behind the end is not of the span."""
    with FakeBroker([Answer(ONE + TWO, 4)]) as broker:
        assert ONE == bytes_of(broker, 0, 2)


# -- transactions --------------------------------------------------------------------------------


def marker(base: int, producer: int, kind: int) -> bytes:
    """The batch that ends a transaction: 0 aborts it, 1 commits it."""
    key = b"\0\0" + kind.to_bytes(2, "big")
    body = record(Sent(b"\0\0\0\0\0\1", key), 0, Sent().timestamp)
    return sealed(base, body, 1, 0, attributes=CONTROL | TRANSACTIONAL, producer=(producer, 0, -1))


def within(base: int, producer: int) -> bytes:
    """A batch of two records in a transaction."""
    return batch(base, [Sent(), Sent()], attributes=TRANSACTIONAL, producer=(producer, 0, 0))


def test_aborted_transactions_are_left_out() -> None:
    """Interleaved transactions, and a later one of the same producer, are told apart."""
    sent = b"".join(
        [
            within(0, 7), within(2, 8), batch(4, [Sent()]), within(5, 7), marker(7, 7, 0),
            within(8, 8), within(10, 7), marker(12, 8, 1), marker(13, 7, 1), within(14, 8),
            sealed(16, b"", 0, 3), marker(20, 8, 0),
        ]
    )  # fmt: skip
    found = walk(pa.py_buffer(sent)).check()

    kept = committed(found, [Aborted(0, 7), Aborted(14, 8)])

    assert [2, 4, 8, 10] == kept.headers["base_offset"].to_pylist()


def cleaned(base: int, producer: int, kind: int) -> bytes:
    """The same once compaction has given it a time to go, which its timestamp then counts from."""
    key, later = b"\0\0" + kind.to_bytes(2, "big"), Sent().timestamp + 86_400_000
    body = record(Sent(b"\0\0\0\0\0\1", key), 0, later)
    bits = CONTROL | TRANSACTIONAL | DELETE_HORIZON
    times = later, Sent().timestamp
    return sealed(base, body, 1, 0, attributes=bits, producer=(producer, 0, -1), times=times)


def emptied(base: int, producer: int) -> bytes:
    """A marker of which compaction has left the header."""
    bits = CONTROL | TRANSACTIONAL
    return sealed(base, b"", 0, 0, attributes=bits, producer=(producer, 0, -1))


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        pytest.param([within(0, 7), cleaned(2, 7, 0), within(3, 7)], [3], id="aborted"),
        pytest.param([within(0, 7), emptied(2, 7), within(256, 7)], [], id="emptied"),
        pytest.param([within(0, 7), emptied(2, 7)], [], id="emptied, and the last"),
    ],
)
def test_markers_that_compaction_has_met_are_read(parts: list[bytes], kept: list[int]) -> None:
    """Their type is not where a broker has written it, or not there at all."""
    found = walk(pa.py_buffer(b"".join(parts))).check()

    assert kept == committed(found, [Aborted(0, 7)]).headers["base_offset"].to_pylist()


def test_a_marker_that_cannot_be_read_is_said() -> None:
    """The topic and the offset are named."""
    bits = CONTROL | TRANSACTIONAL | DELETE_HORIZON
    bad = sealed(2, b"\xff" * 3, 1, 0, attributes=bits, producer=(7, 0, -1))
    with (
        FakeBroker([Answer(within(0, 7) + bad, 4, aborted=[(0, 7)])]) as broker,
        pytest.raises(KafkaError, match="reading t-0: the batch at offset 2"),
    ):
        bytes_of(broker)


# -- signing in ----------------------------------------------------------------------------------


def test_scram_says_what_the_standard_says() -> None:
    """The conversation is that of RFC 7677, section 3."""
    steps = scram("sha256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"

    first = next(steps)
    second = steps.send(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())

    assert b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO" == first
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert f"c=biws,r={nonce},p={proof}".encode() == second
    with pytest.raises(StopIteration):
        steps.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(("session_ms", "times"), [(0, 1), (1_000, 3)])
def test_a_session_that_ends_is_begun_anew(
    session_ms: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the broker ends a session, the reader signs in again, and loses nothing."""
    monkeypatch.setattr(wire, "_SESSION", 0.0)
    answers = [Answer(stable=4), Answer(ONE + TWO, 4)]
    with FakeBroker(answers, session_ms=session_ms) as broker:
        found = bytes_of(
            broker, security_protocol="SASL_PLAINTEXT", sasl_mechanisms="PLAIN",
            sasl_username="me", sasl_password="se\u00e4cret",
        )  # fmt: skip

    assert ONE + TWO == found
    assert b"\0me\0se\xc3\xa4cret" == broker.signed_in[0]
    assert times == len(broker.signed_in)


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=theirs,s=QQ==,i=4096", b"r=ours-theirs,s=QQ==,i=x", b"r=ours-theirs,s=QQ==,i=0",
        b"r=ours-theirs,s=QQ==,i=1", b"r=ours-theirs,s=QQ==,i=2147483647",
        b"r=ours-theirs,i=4096", b"r=ours-theirs,s=Q,i=4096", b"e=other-error", b"\xff",
    ],
)  # fmt: skip
def test_a_challenge_that_makes_no_sense_is_refused(challenge: bytes) -> None:
    """One that is no answer to ours, would give the password away, or take for ever, is refused."""
    steps = scram("sha512", "a=b,c", "secret", "ours")
    assert b"n,,n=a=3Db=2Cc,r=ours" == next(steps)

    with pytest.raises(NoAccessError, match="makes no sense"):
        steps.send(challenge)


def test_a_broker_that_does_not_know_the_password_is_refused() -> None:
    """A server's signature that is wrong is noticed."""
    steps = scram("sha512", "user", "secret", "ours")
    next(steps)
    steps.send(b"r=ours-theirs,s=QQ==,i=4096")

    with pytest.raises(NoAccessError, match="does not know the password"):
        steps.send(b"v=" + base64.b64encode(bytes(64)))


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        pytest.param({}, "", id="plain"),
        pytest.param({"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}, "", id="TLS"),
        pytest.param({"security.protocol": "SASL_SSL"}, "sasl.mechanism=GSSAPI", id="default"),
        pytest.param(
            {"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER"},
            "sasl.mechanism=OAUTHBEARER", id="tokens",
        ),
        pytest.param(
            {"security.protocol": "SASL_SSL", "sasl.mechanisms": "SCRAM-SHA-256"}, "", id="SCRAM"
        ),
        pytest.param(
            {"security.protocol": "SSL", "ssl.keystore.location": "keys.p12"},
            "ssl.keystore.location", id="PKCS#12",
        ),
    ],
)  # fmt: skip
def test_what_is_not_spoken_is_named(properties: dict[str, str], named: str) -> None:
    """Security that only the client library has is told by the property that asks for it."""
    assert named == unspoken(properties)


@pytest.mark.parametrize(
    ("given", "is_verified"), [("false", False), ("F", False), ("0", False), ("t", True)]
)
def test_properties_of_tls_are_spelt_as_for_the_client(given: str, *, is_verified: bool) -> None:
    """A setting that has worked with librdkafka has its effect here."""
    named = Security.of(
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "NONE"}
    )
    found = Security.of({"security.protocol": "SSL", "enable.ssl.certificate.verification": given})

    assert named.tls is not None
    assert found.tls is not None
    assert (False, ssl.CERT_REQUIRED) == (named.tls.check_hostname, named.tls.verify_mode)
    assert is_verified == (found.tls.verify_mode is ssl.CERT_REQUIRED)


def test_a_proxy_that_has_no_broker_behind_it_is_asked_again() -> None:
    """It takes a connection and closes it before TLS has begun: a broker that starts again."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        closing_it = threading.Thread(target=_closed_after_hello, args=(proxy,), daemon=True)
        closing_it.start()
        host, port = proxy.getsockname()
        with pytest.raises(LostError, match="closed the connection"):
            BrokerConnection(
                host, port, Security.of({"security.protocol": "SSL"}), 10, (Api.FETCH,)
            )
        closing_it.join()


def _closed_after_hello(proxy: socket.socket) -> None:
    accepted, _ = proxy.accept()
    with accepted:
        accepted.recv(65536)


def test_a_missing_certificate_is_said() -> None:
    """A file of authorities that is not there is an error that names the reason."""
    with pytest.raises(NoAccessError, match="No such file"):
        Security.of({"security.protocol": "SSL", "ssl.ca.location": "/nowhere/ca.pem"})


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("broker:19092", ("broker", 19092)),
        (" broker", ("broker", 9092)),
        ("SASL_SSL://broker:9093", ("broker", 9093)),
        ("[::1]:9094", ("::1", 9094)),
        ("[::1]", ("::1", 9092)),
    ],
)
def test_servers_are_spelt_as_for_the_client(server: str, address: tuple[str, int]) -> None:
    """Addresses are read as librdkafka reads them."""
    assert address == address_of(server)


def test_who_leads_is_asked_once_until_that_no_longer_holds() -> None:
    """A topic of many partitions is not described for each of them."""
    answers = [Answer(ONE, 4), Answer(error=6), Answer(TWO, 4)]
    with FakeBroker(answers) as broker, opened(broker) as reading:
        for span in (Span(0, 2), Span(2, 4)):
            assert [*reading.batches(WHERE, span)]

    assert [(5, 0), (5, 2), (6, 2)] == [(each.epoch, each.offset) for each in broker.fetches]


class _Older:
    """A reader of older records, which says what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Span] = []
        self.is_closed = False

    def read(self, _where: TopicPartition, span: Span) -> Generator[pa.RecordBatch, None, None]:
        """Read nothing."""
        self.asked.append(span)
        yield from ()

    def close(self) -> None:
        """Note it."""
        self.is_closed = True


def test_older_formats_are_left_to_the_client_library() -> None:
    """Records that are in no batches of version 2 are read by the reader of records."""
    older = _Older()
    answers = [Answer(ONE, 4), Answer(TWO[:16] + b"\1" + TWO[17:], 4)]
    with FakeBroker(answers) as broker:
        settings = KafkaSettings(broker.servers)
        with closing(BatchReader(settings, iter([older]).__next__)) as reading:
            found = [row for rows in reading.read(WHERE, Span(0, 4)) for row in rows.to_pylist()]

    assert [0, 1] == [row["offset"] for row in found]
    assert ([Span(2, 4)], True) == (older.asked, older.is_closed)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, True, id="plain"),
        pytest.param({"client": "native"}, False, id="asked for otherwise"),
        pytest.param({"consumer": {"check.crcs": "true"}}, False, id="what it alone has"),
        pytest.param({"consumer": {"client.rack": "a"}}, True, id="the nearest replica"),
        pytest.param({"consumer": {"fetch.message.max.bytes": "9"}}, True, id="the size"),
        pytest.param(
            {"consumer": {"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER"}},
            False, id="tokens",
        ),
    ],
)  # fmt: skip
def test_what_the_client_library_alone_has_is_left_to_it(
    changes: dict[str, Any], expected: bool
) -> None:
    """Whoever sets what only librdkafka knows has it."""
    if batches_native.library() is None:
        pytest.skip("without the C library all goes through librdkafka")
    assert expected is KafkaSettings("h:1", **changes).reads_batches
