"""Properties that a plugin declares for itself; the plugin is a third party's."""

import pytest

from kbackup import partitioners
from kbackup.config import loading
from kbackup.errors import ConfigurationError
from kbackup.options import (
    Option,
    boolean,
    duration,
    integer,
    names,
    optional_text,
    text,
    verbatim,
    words,
)
from kbackup.partitioners import Partitioner
from kbackup.runs import wiring
from kbackup.stores import StoreSettings
from kbackup.testing.files import WHERE, records
from tests.support.configurations import JSON, SINK, WHOLE, Write, errors, load
from tests.support.invoked import invoke


def directories(partitioner: Partitioner) -> set[str]:
    """Return the directories that it spreads records over."""
    return set(partitioner.encode(WHERE, records()).to_pylist())


def test_the_options_of_a_chosen_plugin_reach_it() -> None:
    """A plugin receives given options with their types, and defaults for the others."""
    chosen = {**WHOLE, "partitioner_class": "modulo"}
    loaded = loading.load(
        "sink", options=chosen, files=(), environ={}, extra=["modulo.directories=2"]
    )
    usual = load("sink", **chosen)

    assert {"modulo.directories": 2} == loaded.settings.options_of("partitioners")
    assert () == loaded.warnings
    found = partitioners.by_name("modulo", loaded.settings.plugin_options)
    assert {"rest=0", "rest=1"} == directories(found)
    found = partitioners.by_name("modulo", usual.settings.plugin_options)
    assert {"rest=1"} == directories(found)  # every third offset


def test_an_option_is_checked_where_it_was_given(write: Write) -> None:
    """The plugin's own check refuses a value, by the name of the property."""
    file = SINK + "partitioner.class=Modulo\nmodulo.directories=none\n"

    found = errors("sink", write(file), bootstrap_servers="h:1")

    assert ["modulo.directories"] == list(found)


def test_an_option_of_a_plugin_that_is_not_chosen_has_no_effect() -> None:
    """An option of a plugin that is not chosen is accepted with a warning."""
    loaded = loading.load(
        "sink", options=WHOLE, files=(), environ={}, extra=["modulo.directories=2"]
    )

    assert ["modulo.directories"] == [
        issue.name for issue in loaded.warnings if issue.code == "no_effect"
    ]


@pytest.mark.parametrize(
    ("given", "lacks"),
    [
        pytest.param("aws.access.key.id", "aws.secret.access.key", id="the secret"),
        pytest.param("aws.secret.access.key", "aws.access.key.id", id="the id"),
    ],
)
@pytest.mark.parametrize("command", ["sink", "restore"])
def test_half_a_pair_of_credentials_is_ignored_with_a_warning(
    write: Write, given: str, lacks: str, command: loading.Command
) -> None:
    """The credential chain is used; the warning names the half and what it lacks, and no secret."""
    loaded = load(command, write(f"{SINK}{given}=CANARY\n"), bootstrap_servers="h:1")

    (issue,) = (issue for issue in loaded.warnings if issue.name == given)
    assert ("no_effect", "set both, or neither") == (issue.code, issue.do)
    assert f"{lacks} is not set" in issue.why
    assert "CANARY" not in str(issue)


@pytest.mark.parametrize(
    ("given", "lacks"),
    [
        pytest.param("s3.proxy.user", "s3.proxy.url", id="a user without a proxy"),
        pytest.param(
            "s3.credentials.provider.sts.role.session.name",
            "s3.credentials.provider.sts.role.arn",
            id="a session without a role",
        ),
    ],
)
def test_what_an_option_needs_is_demanded_by_the_configuration_and_by_the_store_alike(
    write: Write, given: str, lacks: str
) -> None:
    """An option without the one it needs stops the run, and whoever opens the store by itself."""
    found = errors("sink", write(f"{SINK}{given}=x\n"), bootstrap_servers="h:1")
    with pytest.raises(ConfigurationError) as caught:
        StoreSettings("s3://b", options={given: "x"}).open()

    assert {lacks: f"{given} cannot be used without it"} == found
    assert (f"{lacks} is not set", found[lacks]) == (caught.value.what, caught.value.why)


@pytest.mark.parametrize("blank", ["aws.access.key.id", "aws.secret.access.key"])
def test_a_pair_that_is_blank_is_not_given(write: Write, blank: str) -> None:
    """Credentials that a template leaves empty, one or both, mean the credential chain."""
    loaded = load("sink", write(f"{SINK}{blank}=\n"), bootstrap_servers="h:1")

    assert [] == [issue for issue in loaded.warnings if issue.code != "no_effect"]


@pytest.mark.parametrize(
    ("text", "misfit"),
    [
        pytest.param("store.kafka.keys=true", "keys.format.class is avro", id="keys by default"),
        pytest.param(
            "store.kafka.headers=true\nheaders.format.class=avro",
            "headers.format.class is avro",
            id="headers",
        ),
    ],
)
def test_compression_is_of_all_files_or_refused(write: Write, text: str, misfit: str) -> None:
    """A setting for all files is refused if one of them cannot have it, but for the default."""
    base = SINK + text + "\ns3.compression.type="

    found = errors("sink", write(f"{base}gzip\n"), bootstrap_servers="h:1")
    loaded = load("sink", write(f"{base}none\n"), bootstrap_servers="h:1")

    assert {"s3.compression.type": f"{misfit}, which does not have it"} == found
    assert "json" == loaded.settings.format_class


def test_keys_without_a_schema_are_advised_of_the_format_of_keys(write: Write) -> None:
    """What is wrong with keys is not mended by another format of the values."""
    file = SINK + (
        "store.kafka.keys=true\nkeys.format.class=parquet\nkey.converter=json\n"
        "key.converter.schemas.enable=false\n"
    )
    with pytest.raises(ConfigurationError) as refused:
        load("sink", write(file), bootstrap_servers="h:1")

    (wrong,) = refused.value.place["errors"]
    assert ("key.converter", True) == (wrong["name"], "or keys.format.class=json" in wrong["do"])


def test_an_option_may_have_another_default_in_the_connectors_layout(write: Write) -> None:
    """Files of values are compressed as the connector's are, full records as ours, or as asked."""
    file = SINK.replace(JSON, "parquet").replace("schemas.enable=false", "schemas.enable=true")
    values = load("sink", write(file), bootstrap_servers="h:1")
    whole = load("sink", **WHOLE)
    given = load("sink", **WHOLE, parquet_codec="gzip")

    extensions = [
        spec.open_format().extension(spec.options)
        for loaded in (values, whole, given)
        for spec in wiring.views(loaded.settings)
    ]
    assert [".snappy.parquet", ".zstd.parquet", ".gz.parquet"] == extensions


@pytest.mark.parametrize(
    ("options", "environ", "extra"),
    [
        pytest.param({"modulo_directories": "2"}, {}, [], id="option"),
        pytest.param({}, {"KBACKUP_MODULO_DIRECTORIES": "2"}, [], id="variable"),
        pytest.param({}, {}, ["modulo.directories=2"], id="-X"),
    ],
)
def test_one_declaration_gives_option_and_variable(
    options: dict[str, str], environ: dict[str, str], extra: list[str]
) -> None:
    """A third party's option is given like any other."""
    chosen = {**WHOLE, "partitioner_class": "modulo", **options}

    loaded = loading.load("sink", options=chosen, files=(), environ=environ, extra=extra)

    assert 2 == loaded.settings.plugin_options["modulo.directories"]
    assert "--modulo-directories" in invoke("sink", "--help-all").stdout


def test_options_of_a_converter_are_given_for_keys_and_values(write: Write) -> None:
    """One declaration gives ``key.converter.schemas.enable`` and that of the value."""
    file = SINK.replace("value.converter=", "#").replace("value.converter.", "#") + (
        "store.kafka.keys=true\nkeys.format.class=json\nkey.converter=json\n"
        "key.converter.schemas.enable=false\nvalue.converter=string\n"
        "value.converter.schemas.enable=false\n"
    )

    loaded = load("sink", write(file), bootstrap_servers="h:1")

    assert {"schemas.enable": False} == loaded.settings.key_converter_properties
    assert {} == loaded.settings.value_converter_properties
    [idle] = [issue.name for issue in loaded.warnings if issue.code == "no_effect"]
    assert {"value.converter.schemas.enable"} == {
        name for name in idle.split(", ") if "converter" in name
    }


@pytest.mark.parametrize(
    ("option", "given", "value"),
    [
        pytest.param(integer("n", "", 1, ge=0), " 7 ", 7, id="integer"),
        pytest.param(boolean("b", "", False), "TRUE", True, id="boolean"),
        pytest.param(words("w", "", ("a", "b"), "a", any_case=True), "B", "b", id="words"),
        pytest.param(duration("d", "", 1.0), "500ms", 0.5, id="duration"),
        pytest.param(names("l", ""), " a , b", ("a", "b"), id="list"),
        pytest.param(text("t", "", "x"), " y ", "y", id="text"),
        pytest.param(optional_text("o", ""), "  ", None, id="text that may be absent"),
        pytest.param(verbatim("v", ""), " ; ", " ; ", id="text as it is"),
    ],
)
def test_an_option_has_a_type(option: Option[object], given: str, value: object) -> None:
    """Text becomes a value of the type, which stays what it is when it is read again."""
    assert value == option.of({option.name: given})
    assert value == option.of({option.name: value})
    assert option.default == option.of({})


@pytest.mark.parametrize(
    ("option", "given"),
    [
        pytest.param(integer("n", "", 1, ge=0), "-1", id="too small"),
        pytest.param(integer("n", "", 1, le=9), "10", id="too large"),
        pytest.param(boolean("b", "", False), "yes", id="neither true nor false"),
        pytest.param(words("w", "", ("a", "b"), "a"), "B", id="another word"),
        pytest.param(duration("d", "", 1.0), "soon", id="no duration"),
    ],
)
def test_what_is_not_of_the_type_is_refused(option: Option[object], given: str) -> None:
    """The error says which option, and what was expected."""
    with pytest.raises(ConfigurationError, match=rf"^{option.name}={given} .*: expected"):
        option.of({option.name: given})
