"""Read and set groups' offsets, ACLs and users: `kbackup.kafka.Groups`, `kbackup.kafka.Access`.

A sink captures both of the cluster that it backs up, and `restore groups` and `restore access` give
them to another one.

The client for Python copies a position's metadata up to the next zero byte, which lies behind the
text or in the middle of it.  So positions are asked for by the functions of the librdkafka that
this client has loaded, which say how long the metadata are.

It has no calls for quotas.  It takes a broker's refusal for an empty list of ACLs; where it may not
ask for users, it frees memory that is not its own, which ends the process.  So permission is asked
for first, and an empty list is believed where there is an authoriser.  For some later resources and
operations, such as delegation tokens, it has no words, and says ``UNKNOWN``.
"""

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from threading import Event, Thread
from typing import Any, Final

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException, cimpl
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
from kbackup.kafka import (
    Acl,
    BrokerSetting,
    Group,
    GroupList,
    GroupOffset,
    KafkaSettings,
    ScramUser,
)
from kbackup.kafka.client import (
    SPARE_S,
    Administrator,
    code_of,
    kafka_error,
    patiently,
)
from kbackup.records import TopicPartition

_THREADS: Final = 16
"""Groups that are asked for side by side: a request has room for one."""

_POLL_MS: Final = 100
_PRODUCER: Final = 0
_ANY: Final = 0  # RD_KAFKA_ADMIN_OP_ANY
_TEXT_BYTES: Final = 512

_DENIED: Final = frozenset(
    {
        Code.CLUSTER_AUTHORIZATION_FAILED,
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.TOPIC_AUTHORIZATION_FAILED,
    }
)
_GONE: Final = frozenset({Code.GROUP_ID_NOT_FOUND, Code.INVALID_GROUP_ID})
"""Answers about a group that was deleted since it was listed, or that keeps no offsets."""


class _CPartition(ctypes.Structure):
    """``rd_kafka_topic_partition_t``, a part of librdkafka's stable interface."""

    _fields_ = (
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("metadata", ctypes.c_void_p),
        ("metadata_size", ctypes.c_size_t),
        ("opaque", ctypes.c_void_p),
        ("err", ctypes.c_int),
        ("_private", ctypes.c_void_p),
    )


class _Partitions(ctypes.Structure):
    """``rd_kafka_topic_partition_list_t``, likewise."""

    _fields_ = (
        ("cnt", ctypes.c_int),
        ("size", ctypes.c_int),
        ("elems", ctypes.POINTER(_CPartition)),
    )


class _GroupInfo(ctypes.Structure):
    """``struct rd_kafka_group_info``, which begins with a ``struct rd_kafka_metadata_broker``."""

    _fields_ = (
        ("broker", ctypes.c_int32),
        ("host", ctypes.c_char_p),
        ("port", ctypes.c_int),
        ("group", ctypes.c_char_p),
        ("err", ctypes.c_int),
        ("state", ctypes.c_char_p),
        ("protocol_type", ctypes.c_char_p),
        ("protocol", ctypes.c_char_p),
        ("members", ctypes.c_void_p),
        ("member_cnt", ctypes.c_int),
    )


class _GroupList(ctypes.Structure):
    """``struct rd_kafka_group_list``."""

    _fields_ = (("groups", ctypes.POINTER(_GroupInfo)), ("group_cnt", ctypes.c_int))


_P, _I, _S, _Z = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t
_LIST: Final = "ListConsumerGroupOffsets"
_ALTER: Final = "AlterConsumerGroupOffsets"
_DELETE: Final = "DeleteConsumerGroupOffsets"
_REFRESH: Final = ctypes.CFUNCTYPE(None, _P, _S, _P)
"""What librdkafka calls when it needs a token."""

_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "conf_new": (_P,),
    "conf_set": (_I, _P, _S, _S, _S, _Z),
    "conf_set_log_cb": (None, _P, _P),
    "conf_destroy": (None, _P),
    "new": (_P, _I, _P, _S, _Z),
    "destroy": (None, _P),
    "poll": (_I, _P, _I),
    "conf_set_oauthbearer_token_refresh_cb": (None, _P, _REFRESH),
    "oauthbearer_set_token": (_I, _P, _S, ctypes.c_int64, _S, _P, _Z, _S, _Z),
    "oauthbearer_set_token_failure": (_I, _P, _S),
    "list_groups": (_I, _P, _S, _P, _I),
    "group_list_destroy": (None, _P),
    "queue_new": (_P, _P),
    "queue_destroy": (None, _P),
    "queue_poll": (_P, _P, _I),
    "AdminOptions_new": (_P, _P, _I),
    "AdminOptions_set_request_timeout": (_I, _P, _I, _S, _Z),
    "AdminOptions_destroy": (None, _P),
    "event_error": (_I, _P),
    "topic_partition_list_new": (ctypes.POINTER(_Partitions), _I),
    "topic_partition_list_add": (
        ctypes.POINTER(_CPartition), ctypes.POINTER(_Partitions), _S, ctypes.c_int32,
    ),
    "topic_partition_list_destroy": (None, ctypes.POINTER(_Partitions)),
    "group_result_error": (_P, _P),
    "group_result_partitions": (ctypes.POINTER(_Partitions), _P),
    "error_code": (_I, _P),
    "event_destroy": (None, _P),
    **{
        name.format(asked): types
        for asked in (_LIST, _ALTER, _DELETE)
        for name, types in {
            "{}_new": (_P, _S, _P),
            "{}_destroy": (None, _P),
            "{}": (None, _P, ctypes.POINTER(_P), _Z, _P, _P),
            "event_{}_result": (_P, _P),
            "{}_result_groups": (ctypes.POINTER(_P), _P, ctypes.POINTER(_Z)),
        }.items()
    },
}  # fmt: skip
"""Result and arguments of each function, by its name without ``rd_kafka_``."""


@cache
def _librdkafka() -> dict[str, Any]:
    """Return functions of the library that the client has loaded; `KafkaError` if it lacks one."""
    library = ctypes.CDLL(cimpl.__file__)  # what a library depends on is looked into, too
    found = {}
    for name, (result, *arguments) in _FUNCTIONS.items():
        try:
            function = library[f"rd_kafka_{name}"]
        except AttributeError as error:
            why = f"this librdkafka has no rd_kafka_{name}"
            raise KafkaError("asking for the offsets of groups", why) from error
        function.restype, function.argtypes = result, arguments
        found[name] = function
    return found


class KafkaGroups(Administrator):
    """Consumer groups of a cluster."""

    def __init__(self, settings: KafkaSettings) -> None:
        properties = settings.properties({}, settings.admin)
        super().__init__(settings)
        self._call = _librdkafka()
        self._refresh: Any = None  # librdkafka does not keep it alive
        self._client = self._made(properties)
        self._closed = Event()
        self._poller = Thread(target=self._poll, daemon=True)
        self._poller.start()

    def _made(self, properties: Mapping[str, Any]) -> Any:
        """Return a client of librdkafka's own."""
        call, why = self._call, ctypes.create_string_buffer(_TEXT_BYTES)
        what = "making a client that reads the offsets of groups"
        conf = call["conf_new"]()
        for name, value in properties.items():
            if name == "oauth_cb":
                self._refresh = _REFRESH(partial(_sign_in, call, value))
                call["conf_set_oauthbearer_token_refresh_cb"](conf, self._refresh)
                continue
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if call["conf_set"](conf, name.encode(), text.encode(), why, len(why)):
                call["conf_destroy"](conf)
                raise KafkaError(what, why.value.decode(errors="replace"))
        call["conf_set_log_cb"](conf, None)  # the other client says the same
        client = call["new"](_PRODUCER, conf, why, len(why))
        if not client:
            call["conf_destroy"](conf)
            raise KafkaError(what, why.value.decode(errors="replace"))
        return client

    def _poll(self) -> None:
        """Let the client ask for tokens, as long as it is open."""
        while not self._closed.is_set():
            self._call["poll"](self._client, _POLL_MS)

    def close(self) -> None:
        """Leave the cluster."""
        if not self._closed.is_set():
            self._closed.set()
            self._poller.join()
            self._call["destroy"](self._client)

    def listed(self) -> GroupList:
        """Return the groups that this principal may see: `Groups.listed`.

        The list of consumer groups leaves out those of other protocols, and the older list, which
        has all of them, does not say of what protocol groups of the newer kind are.
        """
        try:
            return self._listed()
        except KafkaError as error:
            if code_of(error) in _DENIED:
                return GroupList((), is_complete=False)
            raise

    def _listed(self) -> GroupList:
        what, timeout_s = "listing consumer groups", self._timeout_s

        def consumers() -> Any:
            found = self._admin.list_consumer_groups(request_timeout=timeout_s)
            answer = found.result(timeout=timeout_s + SPARE_S)
            for error in answer.errors or ():  # of a broker
                raise error if isinstance(error, KafkaException) else KafkaException(error)
            return answer.valid or ()

        every = self._calls(what, lambda: patiently(self._of_every_kind, timeout_s))
        known = {
            each.group_id: Group(
                each.group_id,
                "" if each.is_simple_consumer_group else "consumer",
                each.state.name,
            )
            for each in self._calls(what, lambda: patiently(consumers, timeout_s))
        }
        for each in every:
            known.setdefault(each.name, each)
        # without the permission the cluster leaves some out
        is_complete = self._may_describe()
        return GroupList(tuple(known[name] for name in sorted(known)), is_complete)

    def _of_every_kind(self) -> list[Group]:
        """Ask all brokers for their groups; the client for Python takes leave of this question."""
        call, timeout_ms = self._call, int(self._timeout_s * 1000)
        answer = ctypes.POINTER(_GroupList)()
        try:
            _check(call["list_groups"](self._client, None, ctypes.byref(answer), timeout_ms))
            return [
                Group(
                    each.group.decode(),
                    (each.protocol_type or b"").decode(),
                    (each.state or b"").decode().upper(),
                )
                for each in answer.contents.groups[: answer.contents.group_cnt]
            ]
        finally:
            if answer:
                call["group_list_destroy"](answer)

    def offsets(
        self, groups: Sequence[str]
    ) -> Iterator[tuple[str, dict[TopicPartition, GroupOffset] | None]]:
        """Yield where groups stand: `Groups.offsets`."""
        with ThreadPoolExecutor(_THREADS) as pool:
            yield from zip(groups, pool.map(self._of, groups), strict=True)

    def _of(self, group: str) -> dict[TopicPartition, GroupOffset] | None:
        try:
            return patiently(lambda: self._offsets(group), self._timeout_s)
        except KafkaException as error:
            code = error.args[0].code()
            if code in _GONE:
                return {}
            if code in _DENIED:
                return None
            raise kafka_error(f"offsets of group {group}", error, self._complaints) from error

    def _offsets(self, group: str) -> dict[TopicPartition, GroupOffset]:
        # not only stable ones: what a transaction that is open has committed does not count, and
        # what counted before it does
        with self._answer(_LIST, group, None) as partitions:
            found = {}
            for at in partitions:
                _check(at.err)
                if at.offset >= 0:
                    where = TopicPartition(at.topic.decode(), at.partition)
                    text = ctypes.string_at(at.metadata, at.metadata_size) if at.metadata else b""
                    found[where] = GroupOffset(at.offset, text)
            return found

    def alter(self, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        """Set where a group stands: `Groups.alter`."""
        if offsets:
            self._change(_ALTER, group, offsets)

    def delete(self, group: str, wheres: Sequence[TopicPartition]) -> None:
        """Take positions from a group: `Groups.delete`."""
        if wheres:
            self._change(_DELETE, group, dict.fromkeys(wheres))

    def _change(
        self, asked: str, group: str, offsets: Mapping[TopicPartition, GroupOffset | None]
    ) -> None:
        call = self._call
        listed = call["topic_partition_list_new"](len(offsets))
        for where, offset in offsets.items():
            at = call["topic_partition_list_add"](listed, where.topic.encode(), where.partition)
            if offset is not None:
                at.contents.offset = offset.offset
        # librdkafka copies the list; that it has is only lent the texts
        elements = listed.contents.elems[: len(offsets)]
        texts = [ctypes.create_string_buffer(each.metadata) for each in offsets.values() if each]
        for at, text in zip(elements, texts, strict=False):
            at.metadata, at.metadata_size = ctypes.addressof(text), len(text) - 1

        def change() -> None:
            with self._answer(asked, group, listed) as partitions:
                for at in partitions:
                    _check(at.err)

        what = f"setting the offsets of group {group}"
        try:
            self._calls(what, lambda: patiently(change, self._timeout_s))
        finally:
            for at in elements:
                at.metadata, at.metadata_size = None, 0
            call["topic_partition_list_destroy"](listed)

    @contextmanager
    def _answer(self, asked: str, group: str, partitions: Any) -> Iterator[Sequence[_CPartition]]:
        """Ask something about a group's offsets, and yield the partitions of the answer."""
        call, client, why = self._call, self._client, ctypes.create_string_buffer(_TEXT_BYTES)
        queue = call["queue_new"](client)
        options = call["AdminOptions_new"](client, _ANY)
        request = ctypes.c_void_p(call[f"{asked}_new"](group.encode(), partitions))
        event = None
        try:
            timeout_ms = max(1, int(self._timeout_s * 1000))
            call["AdminOptions_set_request_timeout"](options, timeout_ms, why, len(why))
            call[asked](client, ctypes.byref(request), 1, options, queue)
            while not event:  # it comes: the request has a time limit
                event = call["queue_poll"](queue, _POLL_MS)
            _check(call["event_error"](event))
            result = call[f"event_{asked}_result"](event)
            count = ctypes.c_size_t()
            (of_group,) = call[f"{asked}_result_groups"](result, count)[:1]
            if (error := call["group_result_error"](of_group)) is not None:
                _check(call["error_code"](error))
            found = call["group_result_partitions"](of_group)
            yield found.contents.elems[: found.contents.cnt] if found else ()
        finally:
            if event:
                call["event_destroy"](event)
            call[f"{asked}_destroy"](request)
            call["AdminOptions_destroy"](options)
            call["queue_destroy"](queue)


def _sign_in(
    call: Mapping[str, Any], make: Callable[[str], Any], client: int, config: bytes, _opaque: object
) -> None:
    """Give a client the token that a client for Python would get: of its ``oauth_cb``."""
    why = ctypes.create_string_buffer(_TEXT_BYTES)
    try:
        token, expires_s, *_ = make((config or b"").decode())
    except Exception as error:  # noqa: BLE001  (it would be lost in C)
        call["oauthbearer_set_token_failure"](client, str(error).encode())
        return
    if call["oauthbearer_set_token"](
        client, token.encode(), int(expires_s * 1000), b"", None, 0, why, len(why)
    ):
        call["oauthbearer_set_token_failure"](client, why.value)


def _check(code: int) -> None:
    if code:
        raise KafkaException(Code(code))


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
