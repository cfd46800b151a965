"""``kbackup config check`` and ``kbackup config show``, as they are typed."""

import json
import sys
from pathlib import Path

import pytest
from cryptography.hazmat import primitives

import kbackup.kafka
from kbackup.connect import registry
from tests.support.invoked import invoke
from tests.support.json_lines import LINES

INTEROP = Path(__file__).parents[3] / ".." / "shared" / "interop" / "configs"
COLLECTION = sorted(INTEROP.glob("[0-9]*-*.*"))
CONFIGS = sorted((Path(__file__).parents[2] / "conformance" / "configs").iterdir()) + COLLECTION

SINK = """\
name=nightly
connector.class=io.confluent.connect.s3.S3SinkConnector
topics=orders
s3.bucket.name=backups
format.class=io.confluent.connect.s3.format.json.JsonFormat
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
flush.size=10
"""


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    """A connector's file."""
    path = tmp_path / "s3.properties"
    path.write_text(SINK)
    path.chmod(0o600)
    return path


def rows(*words: str, **environ: str) -> dict[str, tuple[str | None, str]]:
    """Return value and origin of each setting that ``config show`` tells."""
    shown = invoke("config", "show", "--json", *words, **environ)
    assert 0 == shown.code, shown
    return {row["name"]: (row["value"], row["origin"]) for row in shown.of("setting")}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_what_people_wrote_is_checked_without_a_traceback(path: Path) -> None:
    """Any connector's file can be checked: the exit code says if it runs, each error is named."""
    checked = invoke("config", "check", "--config", str(path), "--json")

    failed = [row for row in checked.of("check") if row["level"] == "fail"]
    assert (2 if failed else 0) == checked.code == checked.lines[-1]["exit_code"]
    assert len(failed) == len(checked.lines[-1]["errors"])
    assert "Traceback" not in checked.stderr
    for line in checked.lines:
        LINES.validate(line)


def test_configurations_of_every_kind_are_checked() -> None:
    """The parameters are not empty, so the tests below really test something."""
    assert len(CONFIGS) in (7, 7 + 72)


def test_a_doubt_has_level_name_value_origin_and_a_remedy(tmp_path: Path) -> None:
    """A doubt names the line in the file, so that it can be found and corrected."""
    path = tmp_path / "s3.properties"
    path.write_text("topics=orders\ns3.bucket.name=b\nrotate.bytes=many\ntopic.dir=t\n")

    checked = invoke("config", "check", "--config", str(path), COLUMNS="400")

    assert 2 == checked.code
    assert [
        f"fail  configuration topic.dir: no such property (file {path}:4)",
        "      do: did you mean topics.dir?",
        f"fail  configuration rotate.bytes: many: expected a whole number (file {path}:3)",
        "      do: correct it",
        "warn  configuration bootstrap.servers: it is not set",
        "      do: name the brokers: -k HOST:PORT",
        "3 checks: 0 ok, 1 warn, 2 fail",
        "cannot be run until that is corrected:",
        f"  kbackup sink --config {path} -k HOST:PORT",
        f"  kbackup restore --config {path} -k HOST:PORT",
    ] == checked.stdout.splitlines()
    said = "exit 2: the command line or the configuration is wrong (2 errors)\n"
    assert said == checked.stderr


def test_what_can_be_run_is_said_last(tmp_path: Path) -> None:
    """The runs that the configuration is for, with what the file leaves to the command line."""
    path = tmp_path / "s3.properties"
    path.write_text("s3.bucket.name=b\n")
    given = "name=s\nconnector.class=io.confluent.connect.s3.S3SinkConnector\ntopics=t\n"
    form = "format.class=json\nflush.size=3\nkey.converter.enhanced.avro.schema.support=true\n"
    sink = tmp_path / "sink.properties"
    sink.write_text(f"{given}{form}s3.bucket.name=b\nbootstrap.servers=k:1\n")

    both, one = (
        invoke("config", "check", "--config", str(each), COLUMNS="400") for each in (path, sink)
    )

    assert [
        "can be run:",
        f"  kbackup sink --config {path} -k HOST:PORT -t TOPIC",
        f"  kbackup restore --config {path} -k HOST:PORT",
    ] == both.stdout.splitlines()[-3:]
    assert ["can be run:", f"  kbackup sink --config {sink}"] == one.stdout.splitlines()[-2:]
    assert "enhanced.avro.schema.support: for a restore alone" in one.stdout


@pytest.mark.parametrize("name", [
    "value.converter.schema.registery.url", "s3.credentials.provider.aws.acess.key.id",
])  # fmt: skip
def test_a_slip_in_a_connectors_names_is_an_error(name: str, tmp_path: Path) -> None:
    """A converter's or a credential's property that is nearly one of kbackup's is no other's."""
    path = tmp_path / "sink.properties"
    path.write_text(
        "connector.class=io.confluent.connect.s3.S3SinkConnector\ntopics=t\ns3.bucket.name=b\n"
        f"flush.size=3\nformat.class=json\nvalue.converter=json\n{name}=x\n"
    )

    checked = invoke("config", "check", "--config", str(path), "--json")

    [failed] = [row for row in checked.of("check") if row["level"] == "fail"]
    assert (name, 2) == (failed["name"], checked.code)
    assert "did you mean" in failed["do"]


@pytest.mark.parametrize(("given", "who"), [
    ("partitioner.class=time\n", "locale: it is not given, and the partitioner time needs it"),
    (
        "format.class=avro\nvalue.converter=avro\n",
        "value.converter.schema.registry.url: it is not given, and the converter avro needs it",
    ),
])  # fmt: skip
def test_who_needs_a_value_is_said_with_its_kind(tmp_path: Path, given: str, who: str) -> None:
    """Some plugins have everyday words as names, such as time."""
    path = tmp_path / "s3.properties"
    path.write_text(f"topics=orders\ns3.bucket.name=b\n{given}")

    checked = invoke("config", "check", "--config", str(path), COLUMNS="400")

    assert who in checked.stdout


@pytest.mark.parametrize("command", ["config check", "sink", "restore list"])
def test_a_file_without_a_name_is_refused(command: str) -> None:
    """An empty --config, as of a variable that is not set, is not the current folder."""
    refused = invoke(*command.split(), "--config", "")

    assert (2, True) == (refused.code, "error: --config names no file" in refused.stderr)


def test_a_file_with_warnings_only_is_good(sink: Path) -> None:
    """A connector's file that runs passes, whatever else there is to say of it."""
    checked = invoke("config", "check", "--config", str(sink))

    assert 0 == checked.code
    assert "0 fail" in checked.stdout
    assert "" == checked.stderr


def test_a_file_without_a_doubt_says_so(tmp_path: Path) -> None:
    """Checking a configuration without a finding prints that it is good."""
    path = tmp_path / "whole.yaml"
    path.write_text("bootstrap.servers: broker:9092\ntopics: orders\ns3.bucket.name: backups\n")

    checked = invoke("config", "check", "--config", str(path), "--json")

    assert [("ok", str(path))] == [(c["level"], c["name"]) for c in checked.of("check")]


def test_variables_are_checked_too() -> None:
    """Settings from variables are checked like those from files."""
    checked = invoke("config", "check", "--json", KBACKUP_FLUSH_SIZE="lots", KBACKUP_TOPICZ="a")

    levels = {row["name"]: row["level"] for row in checked.of("check")}
    assert (2, "fail", "warn") == (checked.code, levels["flush.size"], levels["KBACKUP_TOPICZ"])


def test_quiet_prints_errors_only(tmp_path: Path) -> None:
    """With --quiet only errors are printed."""
    path = tmp_path / "s3.properties"
    path.write_text("topics=orders\nrotate.bytes=many\ntasks.max=1\n")

    checked = invoke("config", "check", "--config", str(path), "--quiet")

    assert (2, "") == (checked.code, checked.stdout)
    assert "rotate.bytes\n  why: many: expected a whole number" in checked.stderr
    assert "tasks.max" not in checked.stderr


def test_a_bad_output_option_is_a_usage_error() -> None:
    """An invalid output option is a usage error before anything else is checked."""
    checked = invoke("config", "check", "--progress-seconds", "soon")

    assert 2 == checked.code
    assert "progress.seconds" in checked.stderr


@pytest.mark.parametrize(
    ("words", "environ", "expected"),
    [
        pytest.param([], {}, ("1000000", "default"), id="default"),
        pytest.param(["--config", "FILE"], {}, ("10", "file FILE:8"), id="file"),
        pytest.param(
            ["--config", "FILE"],
            {"KBACKUP_FLUSH_SIZE": "20"},
            ("20", "env KBACKUP_FLUSH_SIZE"),
            id="variable before file",
        ),
        pytest.param(
            ["--config", "FILE", "--flush-size", "30"],
            {"KBACKUP_FLUSH_SIZE": "20"},
            ("30", "option"),
            id="option before variable",
        ),
        pytest.param(["-X", "flush.size=40"], {}, ("40", "option"), id="-X"),
    ],
)
def test_each_value_is_shown_with_its_origin(
    sink: Path, words: list[str], environ: dict[str, str], expected: tuple[str, str]
) -> None:
    """Each value is shown with the source that set it, down to the line."""
    found = rows("--all", *(word.replace("FILE", str(sink)) for word in words), **environ)

    assert tuple(text.replace("FILE", str(sink)) for text in expected) == found["flush.size"]


def test_the_last_file_counts(sink: Path, tmp_path: Path) -> None:
    """Of several configuration files, the last one that sets a property wins."""
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"flush.size": 99}))

    found = rows("--config", str(sink), "--config", str(mine))

    assert ("99", f"file {mine}:1") == found["flush.size"]
    assert ("orders", f"file {sink}:3") == found["topics"]


def test_unset_is_null_and_default_is_shown_on_request() -> None:
    """Unset values are null in JSON, and defaults are listed only with --all."""
    assert "s3.region" not in rows()
    assert (None, "default") == rows("--all")["s3.region"]


CANARIES = """\
aws.access.key.id=AKIACANARY
aws.secret.access.key=SECRETCANARY
sasl.password=SASLCANARY
kafka.sasl.oauthbearer.client.secret=OAUTHCANARY
producer.override.sasl.jaas.config=org.x.PlainLoginModule required username="u" password="JCANARY";
value.converter.basic.auth.user.info=u:SRCANARY
confluent.license=LICENSECANARY
"""


@pytest.mark.parametrize("words", [[], ["--json"], ["-vv", "--debug"]], ids=" ".join)
@pytest.mark.parametrize("verb", ["show", "check"])
def test_no_secret_is_shown(tmp_path: Path, words: list[str], verb: str) -> None:
    """Credentials from files and variables appear as asterisks, or not at all."""
    path = tmp_path / "s3.properties"
    path.write_text(CANARIES)
    all_words = ["config", verb, *words, "--config", str(path)]

    shown = invoke(*all_words, KBACKUP_SASL_PASSWORD="ENVCANARY", COLUMNS="400")

    assert 0 == shown.code
    assert (verb == "show") == ("********" in shown.stdout)
    assert "CANARY" not in shown.stdout + shown.stderr


@pytest.mark.parametrize("verb", ["show", "check"])
def test_a_secret_under_a_misspelt_name_is_not_shown(tmp_path: Path, verb: str) -> None:
    """The error has the name, the line and the suggestion, not the value."""
    path = tmp_path / "s3.properties"
    path.write_text("sasl_password=CANARY\n")

    shown = invoke("config", verb, "--config", str(path), COLUMNS="400")

    assert 2 == shown.code
    text = shown.stdout + shown.stderr
    assert (True, True, False) == (
        f"(file {path}:1)" in text, "did you mean sasl.password?" in text, "CANARY" in text,
    )  # fmt: skip


def test_a_wrong_value_is_an_error_of_show(sink: Path) -> None:
    """A configuration that a run would refuse is not shown."""
    shown = invoke("config", "show", "--config", str(sink), "--rotate-bytes", "many")

    assert 2 == shown.code
    assert "rotate.bytes=many" in shown.stderr


@pytest.mark.parametrize(
    ("name", "words", "value"),
    [
        ("topics", ("-t", "orders", "--topics", "payments,clicks"), "orders,payments,clicks"),
        ("partitions", ("--partitions", "0", "--partitions", "3-5"), "0,3,4,5"),
    ],
)
def test_a_list_that_is_given_twice_is_taken_whole(
    name: str, words: tuple[str, ...], value: str
) -> None:
    """Nothing that is named on the command line is left out because something follows it."""
    assert value == rows(*words)[name][0]


@pytest.mark.parametrize("width", ["0", "400"])
def test_a_width_of_zero_is_none(width: str) -> None:
    """A program that does not know the width of its terminal says 0, and still sees something."""
    assert "parquet" in invoke("plugins", COLUMNS=width).stdout


def test_a_misspelt_switch_of_the_archive_is_said_before_the_run() -> None:
    """KBACKUP_ARCHIVE acts after a run, and is read before it: then there is time to correct it."""
    shown = invoke("config", "show", KBACKUP_ARCHIVE="maybe")

    assert 2 == shown.code
    assert "set KBACKUP_ARCHIVE to 1 or 0" in shown.stderr


def test_a_registry_whose_client_is_not_installed_is_found(
    sink: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schemas are backed up by the extra `registry`: without it the check fails, not the run."""
    sink.write_text(f"{SINK}schema.registry.url=http://registry:8081\n")
    before = invoke("config", "check", "--config", str(sink))
    monkeypatch.setattr(registry, "NEEDED", ("no_such_library",))

    checked = invoke("config", "check", "--config", str(sink), COLUMNS="400")

    assert (0, 2) == (before.code, checked.code)
    assert "no_such_library" in checked.stdout
    assert "[registry]" in checked.stdout


def test_a_signer_for_msk_that_is_not_installed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though Kafka's client is asked, too, what it says of its properties."""
    path = tmp_path / "msk.properties"
    path.write_text(f"{SINK}bootstrap.servers=b-1:9098\nsasl.mechanism=AWS_MSK_IAM\n")
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    monkeypatch.delitem(sys.modules, "kbackup.kafka.msk", raising=False)
    monkeypatch.delattr(kbackup.kafka, "msk", raising=False)

    checked = invoke("config", "check", "--config", str(path), "--json")

    failed = {row["name"]: row["do"] for row in checked.of("check") if row["level"] == "fail"}
    assert (2, {"sasl.mechanism"}) == (checked.code, {*failed})
    assert "[msk]" in failed["sasl.mechanism"]


@pytest.mark.parametrize("given", ["recipients=not-a-key", "recipients.file=/not/there.pem"])
def test_who_is_no_recipient_is_found(sink: Path, given: str) -> None:
    """Keys are read without a connection, so they need not wait for the first run."""
    sink.write_text(f"{SINK}encryption.{given}\n")

    checked = invoke("config", "check", "--config", str(sink), "--json")

    failed = [row["name"] for row in checked.of("check") if row["level"] == "fail"]
    assert (2, ["encryption"]) == (checked.code, failed)


@pytest.mark.parametrize("kind", ["identity", "phrase", "key"])
@pytest.mark.parametrize(
    ("content", "mode", "says"),
    [
        (None, 0, "cannot be read: No such file or directory"),
        (b"", 0o600, "holds no"),
        (b"\xffhunter2", 0o644, "has mode 0644"),
        (b"hunter2", 0o600, "holds no"),
    ],
)
def test_keys_that_cannot_be_used_are_found(
    sink: Path, kind: str, content: bytes | None, mode: int, says: str
) -> None:
    """The night of a restore is too late for it; nothing of a file's content is told."""
    path = sink.with_name("secret")
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    sink.write_text(f"{SINK}encryption.{kind}.file={path}\n")

    checked = invoke("config", "check", "--config", str(sink), "--json")

    failed = [row for row in checked.of("check") if row["level"] == "fail"]
    is_good = (kind, content) in [("phrase", b"hunter2"), ("key", None)]  # a run makes the latter
    assert is_good == (checked.code == 0) == (failed == [])
    if not is_good:
        assert (2, ["encryption"]) == (checked.code, [row["name"] for row in failed])
        assert f"{path} {says}" in failed[0]["text"]
        assert failed[0]["do"]
    assert "hunter2" not in f"{checked.stdout}{checked.stderr}"


def test_all_keys_that_cannot_be_used_are_found_at_once(sink: Path) -> None:
    """Each by its file."""
    sink.write_text(
        f"{SINK}encryption.recipients=x\nencryption.identity.file=/not/one\n"
        "encryption.phrase.file=/not/two\n"
    )

    checked = invoke("config", "check", "--config", str(sink), "--json")

    texts = [row["text"] for row in checked.of("check") if row["level"] == "fail"]
    assert 2 == checked.code
    for text, named in zip(texts, ("'x' is no", "/not/one can", "/not/two can"), strict=True):
        assert text.startswith(named)


def test_all_that_is_wrong_is_said_at_once(sink: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing, misspelt, without a value and not installed: nobody corrects it in turns."""
    url = "value.converter.schema.registry.url"
    text = SINK.replace("value.converter.schemas.enable=false\n", "")
    text = text.replace("connect.json.JsonConv", "connect.avro.AvroConv")
    more = f"flush.sizee=1\nkafka.timeoutt=5\ntopics.dir=../x\nencryption.recipients=x\n{url}="
    monkeypatch.setattr(registry, "NEEDED", ("no_such_library",))
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.hpke", None)
    monkeypatch.delattr(primitives, "hpke", raising=False)  # another test may have imported it

    for value in ("", "${env:NOT_THERE}", "http://registry:8081"):
        sink.write_text(f"{text}{more}{value}\n")
        checked = invoke("config", "check", "--config", str(sink), "--json")

        failed = {row["name"]: f"{row['text']} {row['do']}" for row in checked.of("check")
                  if row["level"] == "fail"}  # fmt: skip
        assert {"flush.sizee", "Kafka", "topics.dir", "encryption"} <= failed.keys()
        assert 1 == " ".join(failed.values()).count("'.[registry]'")
        assert "[encryption]" in failed["encryption"]


def test_a_cloud_whose_client_is_not_installed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else is wrong with its options."""
    path = tmp_path / "az.properties"
    path.write_text("store.url=az://account/container/path\ns3.part.size=3\n")
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)

    checked = invoke("config", "check", "--config", str(path), "--json")

    failed = {row["name"]: row["do"] for row in checked.of("check") if row["level"] == "fail"}
    assert {"store.url", "s3.part.size"} == failed.keys()
    assert "[clouds]" in failed["store.url"]


def test_batches_are_asked_for_without_a_cluster(tmp_path: Path) -> None:
    """A file need not name the brokers: -k does."""
    path = tmp_path / "s3.properties"
    path.write_text("topics=orders\ns3.bucket.name=backups\nformat.class=log\n")

    assert (
        "bootstrap.servers is not set"
        not in invoke("config", "check", "--config", str(path)).stdout
    )


@pytest.mark.parametrize(
    "words", [("config", "check"), ("sink",), ("sink", "repair", "orders:0:0")]
)
def test_a_way_that_gives_out_no_batches_is_found_before_anyone_is_asked(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    """`log` stores batches, and librdkafka alone speaks OAUTHBEARER: 2, with no connection made."""
    path = tmp_path / "s3.properties"
    path.write_text(
        "topics=orders\ns3.bucket.name=backups\nbootstrap.servers=127.0.0.1:9\nformat.class=log\n"
        "kafka.security.protocol=SASL_PLAINTEXT\nkafka.sasl.mechanism=OAUTHBEARER\n"
    )

    ran = invoke(*words, "--config", str(path), COLUMNS="400")

    assert 2 == ran.code
    assert "sasl.mechanism=OAUTHBEARER goes through librdkafka" in ran.stdout + ran.stderr


def test_a_misspelt_property_of_kafkas_client_is_found(tmp_path: Path) -> None:
    """Which names the client knows it says itself; what they name may be on another host."""
    path = tmp_path / "s3.properties"
    files = "security.protocol=SSL\nssl.ca.location=/nowhere.pem\n"
    found = []
    for name in ("kafka.timeout", "kafka.timeoutt"):
        path.write_text(f"s3.bucket.name=b\n{files}{name}=5\n")
        checked = invoke("config", "check", "--config", str(path), COLUMNS="400")
        found.append((checked.code, '"timeoutt"' in checked.stdout))

    assert [(0, False), (2, True)] == found
