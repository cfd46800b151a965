"""What an error of the producer means for a restore, and what to do about it."""

from typing import Final

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException

from kbackup.errors import KbackupError, RecordTooLargeError
from kbackup.kafka.client import Complaints, kafka_error
from kbackup.kafka.transport import TakenOverError
from kbackup.records import TopicPartition

FAILURES: Final = (KafkaException, SystemError)
"""What the client raises; see `unwrapped`."""

_FENCED: Final = (Code._FENCED, Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH)  # noqa: SLF001


def meaning(
    target: TopicPartition,
    what: str,
    error: KafkaException,
    complaints: Complaints,
    offset: int | None,
    open_s: float | None = None,
) -> KbackupError:
    """Return the error that an operator is shown.

    Args:
        target: The partition that was written to.
        what: What the writer was doing.
        error: What the client raised.
        complaints: What the client has complained about so far.
        offset: Offset in the backup of the first record concerned; None where it is not known.
        open_s: For how long a transaction has been open that the cluster ends by now; None for one
            that it does not.  It gives the producer a new epoch then, as another producer would:
            the client's error is the same.
    """
    if offset is not None:
        what = f"{what} from offset {offset} of the backup on"
    place = {} if offset is None else {"offset": offset}
    if error.args and hasattr(error.args[0], "code"):
        code = error.args[0].code()
        if code == Code.MSG_SIZE_TOO_LARGE:
            return RecordTooLargeError(
                f"{target}: {what}: a record was refused",
                error.args[0].str(),
                f"raise max.message.bytes of topic {target.topic}",
                **place,
            )
        if code in _FENCED:
            why = "another restore took over this partition"
            if open_s is not None:
                why = (
                    f"its transaction had been open for {open_s:.0f} s, and the cluster ended it "
                    f"(transaction.timeout.ms), or {why}"
                )
            do = "let one restore at a time write to a topic; run the command again to continue"
            return TakenOverError(f"{target}: {what}", why, do)
    translated = kafka_error(f"{target}: {what}", error, complaints)
    translated.place.update(place)
    return translated


def unwrapped(error: Exception) -> KafkaException:
    """Return the client's exception, also where Python made a `SystemError` of it.

    A fatal error, such as being fenced, may be on its way out of ``poll`` or ``flush`` when the
    client reports the records it drops.  Python then finds an exception set where none may be, or
    none where one should be; the client raises it nowhere else.
    """
    if isinstance(error, KafkaException):
        return error
    if isinstance(error.__cause__, KafkaException):
        return error.__cause__
    return KafkaException(Code(Code._FATAL))  # noqa: SLF001
