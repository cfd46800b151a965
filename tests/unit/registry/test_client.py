"""The client of a registry, against one that answers as Confluent's does."""

import gc
import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbackup.connect.registry import (
    AVRO,
    NEEDED,
    RegisteredSchema,
    RegistrySettings,
    connect,
)
from kbackup.connect.registry.client import RegistryClient
from kbackup.errors import RegistryError
from tests.support.certificates import write_certificate
from tests.support.registry import FakeRegistry
from tests.support.running import wait_until

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
Connected = Callable[..., RegistryClient]


@pytest.fixture
def connected(registry: FakeRegistry) -> Connected:
    """Return what connects to the registry, with no pause between attempts."""

    def made(**more: object) -> RegistryClient:
        return connect(RegistrySettings(**{"urls": (registry.url,), "wait_s": 0.0, **more}))  # type: ignore[arg-type]

    return made


def test_what_the_client_needs_is_what_the_extra_installs() -> None:
    """A module that is looked for before a run is one that the advice to install it brings."""
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    installed = {re.split("[<>=]", each)[0] for each in extras["registry"]}

    assert installed == {{"attr": "attrs"}.get(name, name) for name in NEEDED}


def test_a_schema_is_asked_for_once(registry: FakeRegistry, connected: Connected) -> None:
    """A registry never changes what an id stands for, so one request serves all records."""
    registry.add("orders-value", '"string"')
    found = [connected().schema(1) for _ in range(3)]

    assert [RegisteredSchema(AVRO, '"string"')] * 3 == found
    assert ["GET /schemas/ids/1"] == registry.asked


def test_an_unknown_id_is_no_error(connected: Connected) -> None:
    """The client reports an unknown id, and its converter decides whether the record is bad."""
    assert connected().schema(7) is None
    assert connected().version(7, "orders-value") is None


def test_the_version_is_that_of_the_subject(registry: FakeRegistry, connected: Connected) -> None:
    """One schema may have another version under each subject."""
    registry.add("a-value", '"int"')
    registry.add("a-value", '"string"')
    registry.add("b-value", '"string"')
    found = connected()

    assert (2, 1, None) == tuple(found.version(2, f"{topic}-value") for topic in "abc")


def test_schemas_come_with_what_they_refer_to(registry: FakeRegistry, connected: Connected) -> None:
    """Each import stands after those that it needs itself."""
    name = {"type": "record", "name": "x.Name", "fields": [{"name": "n", "type": "string"}]}
    person = {"type": "record", "name": "x.Person", "fields": [{"name": "n", "type": "x.Name"}]}
    refers: Any = {"references": [{"name": "x.Name", "subject": "names", "version": 1}]}
    registry.add("names", name)
    registry.add("people", person, **refers)
    whole: dict[str, Any] = {
        "references": [{"name": "x.Person", "subject": "people", "version": 1}]
    }
    schema_id = registry.add("teams-value", {"type": "array", "items": "x.Person"}, **whole)

    found = connected().schema(schema_id)

    assert found is not None
    assert [("x.Name", name), ("x.Person", person)] == [
        (name, json.loads(text)) for name, text in found.imports
    ]


def test_a_schema_is_registered_once(registry: FakeRegistry, connected: Connected) -> None:
    """A schema that is already registered keeps its id."""
    schema = RegisteredSchema(AVRO, '"long"')
    found = connected()

    assert [1, 1] == [found.register("orders-value", schema) for _ in range(2)]
    assert {"orders-value": [1]} == registry.subjects()
    assert 1 == len(registry.asked)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_moment_of_weakness_is_waited_out(
    registry: FakeRegistry, connected: Connected, status: int
) -> None:
    """Three repetitions are the default, as the connectors' is."""
    registry.add("orders-value", '"string"')
    registry.script = [status, status, status]

    assert connected().schema(1) is not None
    assert 4 == len(registry.asked)


def test_the_budget_ends(registry: FakeRegistry, connected: Connected) -> None:
    """A registry that stays broken is an error to try later, exit code 5."""
    registry.script = [500] * 4
    with pytest.raises(RegistryError) as caught:
        connected().schema(1)

    assert 5 == caught.value.exit_code
    assert f"Schema Registry at {registry.url} refused when asked for schema 1" == caught.value.what
    assert "HTTP 500: as the script says" == caught.value.why
    assert 4 == len(registry.asked)


@pytest.mark.parametrize(
    ("status", "do"),
    [
        pytest.param(401, "a user who may register schemas", id="nobody"),
        pytest.param(403, "a user who may register schemas", id="not allowed"),
        pytest.param(409, "relax the compatibility of the subject", id="another schema"),
    ],
)
def test_a_registry_that_takes_no_schema_says_why_and_what_to_do(
    registry: FakeRegistry, connected: Connected, status: int, do: str
) -> None:
    """A registry that accepts no schema is reported with the right that a restore needs."""
    registry.script = [status]

    with pytest.raises(RegistryError, match="refused when asked to register") as caught:
        connected().register("orders-value", RegisteredSchema(AVRO, '"long"'))

    assert do in caught.value.do


def test_a_registry_that_hangs_is_given_up(registry: FakeRegistry, connected: Connected) -> None:
    """No answer within the time allowed is no answer."""
    registry.script = ["hang", "hang"]
    with pytest.raises(RegistryError, match="did not answer when asked for schema 1"):
        connected(read_s=0.05, retries=1).schema(1)

    wait_until(lambda: len(registry.asked) >= 2, "a question that was given up")
    assert 2 == len(registry.asked)


def test_a_registry_that_hangs_costs_a_bounded_time(registry: FakeRegistry) -> None:
    """A question is repeated once after a whole wait; others then fail without being asked."""
    registry.add("orders-value", '"string"')
    registry.script = ["lost", "lost"]
    times = iter([0.0, 60.0, 120.0, 120.01])
    client = RegistryClient(
        RegistrySettings((registry.url,), read_s=59.0, retries=9, wait_s=0.0),
        now=lambda: next(times),
    )

    for _ in range(2):
        with pytest.raises(RegistryError, match="did not answer"):
            client.schema(1)

    assert 2 == len(registry.asked)


def test_a_registry_that_answers_again_is_asked_again(registry: FakeRegistry) -> None:
    """A registry that did not answer is asked again after no longer than one answer may take."""
    registry.add("orders-value", '"string"')
    registry.script = ["lost"]
    times = iter([0.0, 60.0, 119.0])
    client = RegistryClient(
        RegistrySettings((registry.url,), read_s=59.0, retries=0), now=lambda: next(times)
    )
    with pytest.raises(RegistryError, match="did not answer"):
        client.schema(1)

    assert client.schema(1) is not None


def test_nobody_there(connected: Connected) -> None:
    """A registry that is down is named by its URL."""
    with FakeRegistry() as gone:
        url = gone.url
    with pytest.raises(RegistryError, match=f"at {url} did not answer"):
        connected(urls=(url,), retries=0).schema(1)


def test_another_url_takes_over(registry: FakeRegistry, connected: Connected) -> None:
    """Several URLs of one registry are tried in turn."""
    registry.add("orders-value", '"string"')
    with FakeRegistry() as gone:
        url = gone.url

    assert connected(urls=(url, registry.url), retries=0).schema(1) is not None


def test_credentials_open_it_and_stay_secret(registry: FakeRegistry, connected: Connected) -> None:
    """User and password reach the registry and appear in no message and no printed setting."""
    registry.user = "ann:s3cret"
    registry.add("orders-value", '"string"')
    with pytest.raises(RegistryError) as caught:
        connected(user="ann:wrong").schema(1)

    with pytest.raises(RegistryError) as nobody:
        connected().schema(1)

    assert connected(user="ann:s3cret").schema(1) is not None
    assert "correct basic.auth.user.info" in caught.value.do
    assert "set basic.auth.user.info" in nobody.value.do
    assert "wrong" not in repr(caught.value.issue())
    assert "s3cret" not in repr(RegistrySettings(("http://h",), "ann:s3cret"))


def test_credentials_in_the_url_stay_secret_too() -> None:
    """An error names the registry's host without the user and password in its URL."""
    with FakeRegistry() as gone:
        url = gone.url.replace("://", "://ann:s3cret@")
    with pytest.raises(RegistryError) as caught:
        connect(RegistrySettings((url,), retries=0)).schema(1)

    assert "s3cret" not in repr(caught.value.issue())


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder with the certificates of a server and a client, which are their own authorities."""
    for name in ("server", "client"):
        write_certificate(tmp_path / f"{name}.pem", tmp_path / f"{name}.key")
    return tmp_path


def test_only_authorities_that_were_named_are_trusted(certificates: Path) -> None:
    """A certificate that nobody vouches for ends the request, before credentials are sent."""
    with FakeRegistry(keys=certificates / "server.key") as registry:
        registry.add("orders-value", '"string"')
        given = RegistrySettings((registry.url,), "ann:s3cret", retries=0)
        with pytest.raises(RegistryError, match="did not answer") as caught:
            connect(given).schema(1)
        with pytest.raises(RegistryError, match="did not answer"):
            connect(replace(given, ca=str(certificates / "client.pem"))).schema(1)
        asked = list(registry.asked)

        found = connect(replace(given, ca=str(certificates / "server.pem"))).schema(1)

    assert (RegisteredSchema(AVRO, '"string"'), [], 5) == (found, asked, caught.value.exit_code)
    assert "certificate" in caught.value.why.lower()


def test_a_certificate_of_the_client_is_shown_where_it_is_asked_for(certificates: Path) -> None:
    """Certificate and key are in one file or in two."""
    with FakeRegistry(
        keys=certificates / "server.key", clients=certificates / "client.pem"
    ) as registry:
        registry.add("orders-value", '"string"')
        given = RegistrySettings((registry.url,), ca=str(certificates / "server.pem"), retries=0)
        with pytest.raises(RegistryError):
            connect(given).schema(1)
        pair, whole = (str(certificates / name) for name in ("client.pem", "client.key"))

        found = [
            connect(replace(given, certificate=pair, key=whole)).schema(1),
            connect(replace(given, certificate=whole)).schema(1),
        ]

    assert [RegisteredSchema(AVRO, '"string"')] * 2 == found


def test_what_is_no_registry_is_named(registry: FakeRegistry, connected: Connected) -> None:
    """A 404 that no registry gives means a wrong URL, not an unknown schema."""
    with pytest.raises(RegistryError, match="HTTP 404") as caught:
        connected(urls=(registry.url + "/wrong",)).schema(1)

    assert "schema.registry.url" in caught.value.do


def test_a_connection_that_nobody_holds_is_closed(
    registry: FakeRegistry, connected: Connected
) -> None:
    """Sockets do not wait for the end of the process, nor for a collector's warning."""
    registry.keeps_alive = True
    registry.add("orders-value", '"string"')
    connected(read_s=59.0).schema(1)

    connect.cache_clear()
    gc.collect()

    assert registry.closed.wait(30)
