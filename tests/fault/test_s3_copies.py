"""Objects that the server itself copies from bucket to bucket, and all that keeps it from that."""

import base64
import hashlib
import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from mypy_boto3_s3 import S3Client
from s3fault import Fault, S3Faults

from kbackup.catalog.copying import Outcome, copy_if_absent
from kbackup.catalog.ledger.rows import Entry
from kbackup.stores import StoreSettings
from kbackup.stores.s3 import S3Store, transfer
from kbackup.stores.s3.options import ObjectSettings
from tests.fault.conftest import PART_BYTES

KEY = "topics/orders/partition=0/orders+0+0000000000 ü.json"
BODY = bytes(range(256)) * (PART_BYTES // 64)  # in four parts
FACTS = {"first-offset": "0", "last-offset": "8", "records": "9"}


class Pair:
    """A bucket with an object, and an empty one beside it, on one server."""

    def __init__(self, settings: StoreSettings, truth: S3Client, proxy: S3Faults) -> None:
        self.settings, self.truth, self.proxy = settings, truth, proxy
        self.name = settings.url.removeprefix("s3://")
        truth.create_bucket(Bucket=f"{self.name}-copy")
        self.source = S3Store(settings)
        self.target = self.beside()
        self.put(BODY)

    def beside(self, **options: Any) -> S3Store:
        """The other bucket."""
        given = {**self.settings.options, **options}
        return S3Store(replace(self.settings, url=f"s3://{self.name}-copy", options=given))

    def put(self, body: bytes, store: S3Store | None = None) -> None:
        """Store an object as a sink does."""
        sha256 = hashlib.sha256(body).hexdigest()
        (store or self.source).put(KEY, io.BytesIO(body), sha256=sha256, metadata=FACTS)

    def brought(self, expect: Outcome = Outcome.SENT, row: Entry | None = None) -> list[str]:
        """Bring the object; return the methods of the requests for it."""
        before = len(self.proxy.log)
        found = copy_if_absent(self.source, self.target, KEY, row, is_there=False)
        assert expect is found.outcome
        return [line.split()[0] for line, _ in self.proxy.log[before:]]

    def there(self) -> tuple[bytes, dict[str, str]] | None:
        """What is in the other bucket."""
        found = self.truth.list_objects_v2(Bucket=f"{self.name}-copy").get("Contents", ())
        if not found:
            return None
        answer = self.truth.get_object(Bucket=f"{self.name}-copy", Key=KEY)
        return answer["Body"].read(), answer["Metadata"]


@pytest.fixture
def pair(settings: StoreSettings, truth: S3Client, proxy: S3Faults) -> Pair:
    return Pair(settings, truth, proxy)


@pytest.fixture(params=[False, True], ids=["at once", "in parts"])
def is_large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the object is too large for one request."""
    if request.param:
        monkeypatch.setattr(transfer, "COPIED_BYTES_MAX", len(BODY) - 1)
    return bool(request.param)


WHOLE = BODY, {**FACTS, "sha256": hashlib.sha256(BODY).hexdigest()}


def test_the_server_copies_what_both_buckets_may_see(pair: Pair) -> None:
    """No body passes this host: two looks and a copy, with the facts of the object."""
    assert ["HEAD", "HEAD", "PUT"] == pair.brought()
    assert WHOLE == pair.there()
    assert pair.proxy.headers[-1]["x-amz-copy-source"].startswith(f"{pair.name}/topics/")


def test_the_server_copies_part_by_part_what_is_too_large(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the parts of the object, so that a checksum of them shows that they are the same."""
    monkeypatch.setattr(transfer, "COPIED_BYTES_MAX", len(BODY) - 1)
    pair.target = pair.beside(**{"s3.part.size": 3 * PART_BYTES})

    done = pair.brought()

    assert [*["HEAD"] * 4, "POST", *["PUT"] * 4, "POST", *["HEAD"] * 2] == done
    assert WHOLE == pair.there()
    completed = pair.proxy.headers[-3]
    assert "*" == completed["if-none-match"]
    ranges = [one["x-amz-copy-source-range"] for one in pair.proxy.headers[-7:-3]]
    assert [f"bytes={at}-{at + PART_BYTES - 1}" for at in range(0, len(BODY), PART_BYTES)] == ranges
    assert all(one["x-amz-copy-source-if-match"] for one in pair.proxy.headers[-7:-3])


@pytest.mark.parametrize("lengths", [[1, 2, 1], [2, 1, 1]], ids=["later", "first"])
def test_a_copy_of_other_parts_is_not_trusted(
    pair: Pair, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing shows that it is whole: it is taken back, and the object is sent."""
    monkeypatch.setattr(transfer, "COPIED_BYTES_MAX", len(BODY) - 1)
    place: Any = {"Bucket": pair.name, "Key": KEY}
    begun = pair.truth.create_multipart_upload(
        **place, Metadata=WHOLE[1], ChecksumAlgorithm="SHA256"
    )
    place["UploadId"] = begun["UploadId"]
    parts: list[Any] = []
    at = 0
    for number, length in enumerate(lengths, 1):
        body = BODY[at : at + length * PART_BYTES]
        at += len(body)
        part = pair.truth.upload_part(**place, PartNumber=number, Body=body)
        parts.append({"PartNumber": number, "ETag": part["ETag"]})
    pair.truth.complete_multipart_upload(**place, MultipartUpload={"Parts": parts})

    done = pair.brought()

    assert "DELETE" in done
    assert "GET" in done
    assert WHOLE == pair.there()


def test_what_shows_no_checksum_of_parts_is_sent(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an object that did not come in parts: its copy could not be compared with it."""
    monkeypatch.setattr(transfer, "COPIED_BYTES_MAX", len(BODY) - 1)
    pair.truth.put_object(Bucket=pair.name, Key=KEY, Body=BODY, Metadata=WHOLE[1])

    assert "GET" in pair.brought()
    assert not any("x-amz-copy-source" in one for one in pair.proxy.headers)
    assert WHOLE == pair.there()


@pytest.mark.usefixtures("is_large")
def test_a_copy_is_stored_as_an_object_of_its_bucket(pair: Pair) -> None:
    """Class, encryption and tags are those of the copy's own settings."""
    pair.target = pair.beside(
        **{
            "s3.storage.class": "STANDARD_IA", "s3.ssea.name": "AES256", "s3.object.tagging": True,
        }
    )  # fmt: skip
    pair.brought()

    head = pair.truth.head_object(Bucket=f"{pair.name}-copy", Key=KEY)
    assert ("STANDARD_IA", "AES256") == (head["StorageClass"], head["ServerSideEncryption"])
    tags = pair.truth.get_object_tagging(Bucket=f"{pair.name}-copy", Key=KEY)["TagSet"]
    assert {"startOffset": "0", "endOffset": "8", "recordCount": "9"} == {
        one["Key"]: one["Value"] for one in tags
    }
    assert any("x-amz-copy-source" in one for one in pair.proxy.headers)


def test_each_part_is_copied_with_the_key_of_a_customer() -> None:
    """As each part is sent with it."""
    key = base64.b64encode(bytes(32)).decode()

    found = ObjectSettings.of({"s3.sse.customer.key": key}).params("upload_part_copy", KEY, None)

    assert bytes(32) == found["SSECustomerKey"]


@pytest.mark.parametrize("operation", ["put_object", "copy_object", "create_multipart_upload"])
def test_each_request_that_makes_an_object_locks_it(operation: str) -> None:
    """Sent at once, in parts, or copied by the server: moto locks the first alone."""
    given = {"s3.object.lock.mode": "COMPLIANCE", "s3.object.lock.days": 1}

    found = ObjectSettings.of(given).params(operation, KEY, FACTS)

    assert "COMPLIANCE" == found["ObjectLockMode"]
    assert found["ObjectLockRetainUntilDate"] > datetime.now(UTC) + timedelta(hours=23)


@pytest.mark.usefixtures("is_large")
@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (501, "NotImplemented")])
def test_what_the_server_does_not_copy_is_sent_and_is_tried_once(
    pair: Pair, status: int, code: str
) -> None:
    """As where the copy's credentials cannot read the backup."""
    refused = Fault("PUT ", "status", header="x-amz-copy-source", status=status, code=code)
    pair.proxy.faults.append(refused)

    assert "GET" in pair.brought()
    assert WHOLE == pair.there()
    pair.truth.delete_object(Bucket=f"{pair.name}-copy", Key=KEY)
    assert "GET" == pair.brought()[0]


@pytest.mark.usefixtures("is_large")
def test_a_lost_answer_is_no_lost_copy(pair: Pair) -> None:
    """What was copied is found to be the same, whoever copied it."""
    lost = Fault("PUT ", "reset_after", header="x-amz-copy-source")
    pair.proxy.faults.append(lost)

    pair.brought()

    assert WHOLE == pair.there()


def test_an_object_that_is_not_what_was_stored_is_not_copied(pair: Pair) -> None:
    """The server tells the sha256 of what it has copied: what differs does not stay."""
    pair.truth.put_object(Bucket=pair.name, Key=KEY, Body=BODY[1:], Metadata=WHOLE[1])

    pair.brought(Outcome.LOST)

    assert pair.there() is None


def test_an_object_that_the_ledger_has_otherwise_is_not_copied(pair: Pair) -> None:
    """Somebody has put another one there, with facts of its own."""
    row = Entry("object", 0, 0, 8, KEY, "value", 9, len(BODY), "0" * 64)

    assert "PUT" not in pair.brought(Outcome.LOST, row)


@pytest.mark.parametrize("is_damaged", [False, True], ids=["whole", "damaged"])
def test_where_the_server_tells_no_checksum_the_copy_is_read(pair: Pair, is_damaged: bool) -> None:
    """Once: then objects are sent.  Of parts there is another kind of checksum."""
    of_parts = base64.b64encode(bytes(32)).decode() + "-4"
    answer = f"<CopyObjectResult><ChecksumSHA256>{of_parts}</ChecksumSHA256></CopyObjectResult>"
    told = Fault("PUT ", "replace", header="x-amz-copy-source", body=answer.encode())
    pair.proxy.faults.append(told)
    if is_damaged:
        pair.truth.put_object(Bucket=pair.name, Key=KEY, Body=BODY[1:], Metadata=WHOLE[1])

    outcome = Outcome.LOST if is_damaged else Outcome.SENT
    pair.brought(outcome)

    assert (None if is_damaged else WHOLE) == pair.there()
    assert "GET" == pair.brought(outcome)[0]


@pytest.mark.usefixtures("is_large")
def test_something_else_under_the_key_stays(pair: Pair) -> None:
    """It has come since the listing, and not every server keeps to a condition of a copy."""
    pair.truth.put_object(Bucket=f"{pair.name}-copy", Key=KEY, Body=b"another")

    pair.brought(Outcome.REFUSED)

    assert pair.there() == (b"another", {})


def test_a_server_that_is_another_one_is_not_asked(pair: Pair, s3_server: Any) -> None:
    """Nor is one that would need the key that the object was stored with."""
    direct = replace(pair.settings, endpoint_url=s3_server.endpoint_url)
    keyed = {**pair.settings.options, "s3.sse.customer.key": base64.b64encode(bytes(32)).decode()}
    for settings in (direct, replace(pair.settings, options=keyed)):
        found = pair.target.copy_from(S3Store(settings), KEY, lambda _: True)
        assert found is None
    assert pair.there() is None
