"""Decodes records of internal topics for people: keys and values as JSON instead of msgpack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from delayed.records import KINDS as DELAYED
from groups.records import KINDS as GROUPS
from transactions.records import KINDS as TRANSACTIONS

if TYPE_CHECKING:
    from raftlog.client.messages import Message
    from raftlog.hosting.keyed_records import KeyedRecords

_KINDS: Final[Mapping[str, KeyedRecords[Any, Any]]] = {
    "__offsets": GROUPS,
    "__transactions": TRANSACTIONS,
    "__delayed": DELAYED,
}


def readable(message: Message) -> Message:
    """Return the message with its key and value as JSON; unchanged if this version of raftlog does not know
    the kind of record.
    """
    kinds = _KINDS.get(message.topic)
    try:
        row = None if kinds is None else kinds.decoded(message.key, message.value)
    except ValueError:
        return message
    if row is None:
        return message
    key, value = row
    kind = key.__struct_config__.tag
    return msgspec.structs.replace(
        message,
        key=msgspec.json.encode({"kind": kind, **msgspec.structs.asdict(key)}),
        value=None if value is None else msgspec.json.encode(value),
    )
