"""Amazon MSK's way to sign in, with a signer whose tokens are short-lived and a real broker."""

import base64
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.integration.product import KafkaSettings, LocalS3
from tests.support.brokers import SecureKafka
from tests.support.cluster import Record, TestCluster
from tests.support.command import Kbackup
from tests.support.running import running, wait_until

pytestmark = pytest.mark.integration

SIGNER = Path(__file__).parents[1] / "support" / "msk_signer"
PROPERTIES = """\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=AWS_MSK_IAM
sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;
sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """A broker that ends the connection of a client whose token has expired."""
    with SecureKafka(tmp_path_factory.mktemp("msk"), session_ms=30_000) as kafka:
        yield kafka


@pytest.mark.parametrize(
    ("way", "life_s", "run_s"),
    [
        pytest.param("native", 6, 13, marks=pytest.mark.one_process, id="in one process"),
        pytest.param("native", 20, 60, marks=pytest.mark.nightly, id="on Spark"),
        pytest.param("python", 20, 60, marks=pytest.mark.nightly, id="on Spark, in Python"),
    ],
)
def test_tokens_are_renewed_while_a_sink_and_a_restore_work(
    kbackup: Kbackup, broker: SecureKafka, tmp_path: Path, way: str, life_s: int, run_s: int
) -> None:
    """A run outlives its tokens many times: driver, readers and writers each renew their own."""
    cluster, topic = TestCluster(broker.plain), f"msk-{way}-{life_s}"
    copy = cluster.create(f"copy_of_{topic}")
    cluster.create(topic)
    written: list[bytes] = []
    config, log = tmp_path / "msk.properties", tmp_path / "tokens"
    config.write_text(PROPERTIES)
    log.touch()
    msk = kbackup.with_environment(
        KBACKUP_BOOTSTRAP_SERVERS=broker.oauth, PYTHONPATH=str(SIGNER), AWS_REGION="eu-west-1",
        KBACKUP_KAFKA_CLIENT=way, MSK_SIGNER_SECONDS=str(life_s), MSK_SIGNER_LOG=str(log),
    )  # fmt: skip
    common = ("--config", str(config), "-t", topic, "--follow", "--kafka-timeout", "30s")
    sink_words = ("--flush-size", "25", "--rotate-idle-ms", "300")
    back_words = ("--rename", "copy_of_$0", "--s3-poll-interval-ms", "200")

    with (
        running(msk, "sink", *common, *sink_words) as sink,
        running(msk, "restore", *common, *back_words) as back,
    ):
        wait_until(lambda: len(log.read_text().splitlines()) > 4, "both to sign in")
        end = time.monotonic() + run_s
        while time.monotonic() < end:
            written.append(b"%d" % len(written))
            cluster.write(topic, [Record(b"k", written[-1])])
            time.sleep(0.2)
        wait_until(lambda: len(cluster.read(copy, 0)) >= len(written), "all records in the copy")
        for command in (back, sink):
            command.signal(signal.SIGTERM)
        ends = [command.finish() for command in (back, sink)]

    made = [json.loads(line) for line in log.read_text().splitlines()]
    assert written == [found.value for found in cluster.read(copy, 0)]
    assert [(143, [])] * 2 == [(one.code, one.summary["errors"]) for one in ends]
    assert {"eu-west-1"} == {region for _, _, region, _ in made}
    assert made[-1][0] - made[0][0] > 2 * life_s


def test_a_role_is_assumed_for_a_token(s3: LocalS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is a role's, by the keys that AWS's token service gives out, asked once."""
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="the extra msk is not installed")
    for name, text in s3.environment.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", s3.endpoint_url)
    role = {"awsRoleArn": "arn:aws:iam::123456789012:role/backup", "awsRoleSessionName": "nightly"}
    kafka = KafkaSettings("b-1.x.kafka.eu-west-1.amazonaws.com:9098")

    first, second = (
        kafka.properties({}, {"sasl.mechanisms": "AWS_MSK_IAM", **role})["oauth_cb"](None)[0]
        for _ in range(2)
    )

    keys = {key_of(first), key_of(second)}
    assert 1 == len(keys)
    assert keys.isdisjoint({s3.access_key_id})


def key_of(token: str) -> str:
    """The access key that signed a token."""
    address = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    return parse_qs(urlsplit(address).query)["X-Amz-Credential"][0].split("/")[0]
