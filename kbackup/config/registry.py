"""Declarations: the Schema Registry whose schemas a backup keeps, or a restore registers."""

from typing import ClassVar

from kbackup.config.parsing import OptionalText, RegistryUrls
from kbackup.config.property import RUNS, Group, declare


class SchemaRegistry(Group):
    """The registry of a sink's source, or of a restore's target.

    Converters have properties of their own, which may name another registry for keys and values.
    """

    title: ClassVar[str] = "Schema Registry"
    commands: ClassVar[frozenset[str]] = RUNS | {"doctor"}

    schema_registry_url: RegistryUrls = declare(
        (),
        "Schema Registry, one or several URLs of it: a sink stores the schemas that records name, "
        "and a restore of whole records registers them there.",
        example="https://registry:8081",
    )
    schema_registry_basic_auth_user_info: OptionalText = declare(
        None, "User and password of that registry, as user:password.", is_secret=True
    )
    schema_registry_ssl_ca_location: OptionalText = declare(
        None,
        "PEM file or folder of the authorities that signed that registry's certificate.",
        example="/etc/ssl/registry-ca.pem",
    )
    schema_registry_ssl_certificate_location: OptionalText = declare(
        None,
        "PEM file with this client's certificate, for a registry that asks for one.",
        example="/etc/ssl/client.pem",
    )
    schema_registry_ssl_key_location: OptionalText = declare(
        None,
        "PEM file with the private key, if it is not in the certificate's file.",
        example="/etc/ssl/client.key",
    )
    schema_registry_ssl_key_password: OptionalText = declare(
        None, "Password of that private key.", is_secret=True
    )
