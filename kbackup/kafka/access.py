"""Who may do what in a cluster, as Kafka has it: `kbackup.kafka.Access`.

The client has no calls for quotas.  It takes a broker's refusal for an empty list of ACLs; where it
may not ask for users, it frees memory that is not its own, which ends the process.  So permission
is asked for first, and an empty list is believed where there is an authoriser.  For some later
resources and operations, such as delegation tokens, it has no words, and says ``UNKNOWN``.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError as Code
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kbackup.errors import KafkaError
from kbackup.kafka import Acl, BrokerSetting, ScramUser
from kbackup.kafka.client import Administrator, code_of

_ALLOW: Final = "check the credentials and the ACLs of this principal"

_CLUSTER: Final = "CLUSTER"
"""What ``kafka-acls`` calls the resource that the client calls BROKER."""

_NOT_OFFERED: Final = frozenset(
    {
        Code.SECURITY_DISABLED,
        Code.UNSUPPORTED_VERSION,
        Code._UNSUPPORTED_FEATURE,  # noqa: SLF001  (how the client spells it)
    }
)


class KafkaAccess(Administrator):
    """The access control of a cluster."""

    def close(self) -> None:
        """Leave the cluster: the client does so when nobody has it any more."""
        del self._admin

    def acls(self) -> tuple[Acl, ...] | None:
        """Return all entries: `Access.acls`."""
        every = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None,
            AclOperation.ANY, AclPermissionType.ANY,
        )  # fmt: skip
        self._check_allowed(what := "reading the ACLs")
        found = self._offered(
            what,
            lambda: self._admin.describe_acls(every, request_timeout=self._timeout_s),
        )
        if found is None or not (found or self._has_authoriser()):
            return None
        return tuple(sorted(map(_acl, found)))

    def _has_authoriser(self) -> bool:
        """Whether the cluster checks permissions; where settings may not be read, it does."""
        try:
            found = self.settings().get("authorizer.class.name")
        except KafkaError as error:
            if code_of(error) == Code.CLUSTER_AUTHORIZATION_FAILED:
                return True
            raise
        return found is None or bool(found.value)  # a service may not show it

    def users(self) -> tuple[ScramUser, ...] | None:
        """Return all users: `Access.users`."""
        self._check_allowed(what := "reading the SCRAM users")
        found = self._offered(
            what,
            lambda: self._admin.describe_user_scram_credentials(request_timeout=self._timeout_s),
        )
        if found is None:
            return None
        return tuple(
            sorted(
                ScramUser(name, each.mechanism.name.replace("_", "-"), each.iterations)
                for name, described in found.items()
                for each in described.scram_credential_infos
            )
        )

    def settings(self) -> dict[str, BrokerSetting]:
        """Return the settings of the broker with the lowest id: `Access.settings`."""
        what = "reading the settings of a broker"
        listed = self._calls(what, lambda: self._admin.list_topics(timeout=self._timeout_s))
        broker = ConfigResource(ResourceType.BROKER, str(min(listed.brokers)))
        (future,) = self._admin.describe_configs([broker], request_timeout=self._timeout_s).values()
        return {
            name: BrokerSetting(entry.value, bool(entry.is_default))
            for name, entry in self._result(what, future).items()
        }

    def add(self, acls: Sequence[Acl]) -> None:
        """Add entries: `Access.add`."""
        if not acls:
            return
        bindings = {_binding(acl): acl for acl in acls}
        futures = self._admin.create_acls(list(bindings), request_timeout=self._timeout_s)
        for binding, future in futures.items():
            acl = bindings[binding]
            self._result(f"adding the ACL of {acl.principal} on {acl.name}", future)

    def set_password(self, user: ScramUser, password: bytes) -> None:
        """Let a user sign in: `Access.set_password`."""
        mechanism = ScramMechanism[user.mechanism.replace("-", "_")]
        wanted = UserScramCredentialUpsertion(
            user.name, ScramCredentialInfo(mechanism, user.iterations), password
        )
        futures = self._admin.alter_user_scram_credentials(
            [wanted], request_timeout=self._timeout_s
        )
        self._result(f"setting the password of user {user.name}", futures[user.name])

    def _check_allowed(self, what: str) -> None:
        """Raise an error where this principal lacks DESCRIBE on the cluster."""
        if not self._may_describe():
            raise KafkaError(what, "DESCRIBE on the cluster is denied", _ALLOW)

    def _offered(self, what: str, ask: Callable[[], Any]) -> Any:
        """Return an answer; None where the cluster does not have what is asked for."""
        try:
            return self._result(what, ask())
        except KafkaError as error:
            if code_of(error) in _NOT_OFFERED:
                return None
            raise

    def _result(self, what: str, future: Any) -> Any:
        try:
            return super()._result(what, future)
        except KafkaError as error:
            if code_of(error) == Code.CLUSTER_AUTHORIZATION_FAILED:  # it shows the request
                denied = KafkaError(what, "it is denied on the cluster", _ALLOW)
                raise denied from error.__cause__
            raise


def _acl(found: Any) -> Acl:
    kind = _CLUSTER if found.restype is ResourceType.BROKER else found.restype.name
    return Acl(
        kind, found.name, found.resource_pattern_type.name, found.principal, found.host,
        found.operation.name, found.permission_type.name,
    )  # fmt: skip


def _binding(acl: Acl) -> AclBinding:
    kind = "BROKER" if acl.resource_type == _CLUSTER else acl.resource_type
    return AclBinding(
        ResourceType[kind], acl.name, ResourcePatternType[acl.pattern], acl.principal, acl.host,
        AclOperation[acl.operation], AclPermissionType[acl.permission],
    )  # fmt: skip
