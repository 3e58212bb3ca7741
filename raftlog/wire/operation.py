"""An operation of the HTTP API: what the server's route, its document and the clients have in common.

Each module of bodies has the operations that take and return them, one constant each; ``operations`` lists all
of them. Leaves to others: what a broker does (``api.resources``), query parameters and headers (their defaults
are settings of the broker), and the methods of the clients (``raftlog.client``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Generic, Literal, TypeVar
from urllib.parse import quote

import msgspec

from raftlog import errors
from raftlog.errors import RaftlogError
from raftlog.wire import media_types

Schema = Mapping[str, object]
BodyType = type[msgspec.Struct] | tuple[type[msgspec.Struct], ...] | Schema
"""A struct, a union of structs, or a JSON schema for other media types."""

BINARY: Final[Schema] = {"type": "string", "format": "binary"}
TEXT: Final[Schema] = {"type": "string"}

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class Nothing(msgspec.Struct):
    """The answer of an operation that returns no JSON body."""


Reply = TypeVar("Reply", bound=msgspec.Struct)


class Leader(StrEnum):
    """The broker that carries an operation out; the others forward the request to it."""

    ANY = "any"
    METADATA = "metadata"  # any broker that has received the metadata of the cluster
    CONTROLLER = "controller"
    PARTITION = "partition"
    GROUP = "group"  # the coordinator of the group
    TRANSACTION = "transaction"  # the coordinator of the transaction
    DELAYED = "delayed"  # the coordinator of the delayed message or the schedule


@dataclass(frozen=True, slots=True)
class Answer:
    """One successful response: its bodies by media type and its headers."""

    description: str
    bodies: Mapping[str, BodyType] = field(default_factory=dict)
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Operation(Generic[Reply]):
    """One method of one path. ``name`` is its name in every place: ``<resource>.<verb>``.

    ``path`` has the fields that ``at`` fills in. ``body`` is the JSON body and ``other_bodies`` those of other
    media types; ``answer`` is the JSON body of each response in ``success`` that is described by a text alone,
    unless its status is 204. ``headers`` are those of such responses.

    ``errors`` are those beyond the errors that follow from the other fields (``all_errors``). ``may_repeat``
    is False where a client must not send the request again after an unknown outcome, as the repetition could
    undo a later change.
    """

    name: str
    method: Method
    path: str
    summary: str
    text: str = ""
    leader: Leader = Leader.ANY
    body: type[msgspec.Struct] | None = None
    body_required: bool = True
    other_bodies: Mapping[str, Schema] = field(default_factory=dict)
    answer: type[Reply]
    success: Mapping[int, str | Answer]
    headers: tuple[str, ...] = ()
    errors: tuple[type[RaftlogError], ...] = ()
    may_repeat: bool = True

    def at(self, **fields: str | int) -> str:
        """The path with these fields, quoted. Names that UTF-8 cannot encode are left to the server's refusal."""
        return self.path.format_map({name: _quoted(str(value)) for name, value in fields.items()})

    @property
    def bodies(self) -> Mapping[str, BodyType]:
        """The request bodies by media type."""
        of_json: dict[str, BodyType] = {} if self.body is None else {media_types.JSON: self.body}
        return {**of_json, **self.other_bodies}

    @property
    def answers(self) -> Mapping[int, Answer]:
        """The successful responses by status."""
        return {
            status: self._answer(status, shown) if isinstance(shown, str) else shown
            for status, shown in self.success.items()
        }

    def _answer(self, status: int, description: str) -> Answer:
        has_body = status != 204
        return Answer(description, {media_types.JSON: self.answer} if has_body else {}, self.headers)

    @property
    def all_errors(self) -> tuple[type[RaftlogError], ...]:
        """Every error of this operation but those that any HTTP request may get."""
        is_write = self.method != "GET"
        found = [*self.errors]
        if "{partition}" in self.path:
            found += [errors.UnknownTopic, errors.UnknownPartition]
        if self.body is not None:
            found += [errors.UnsupportedMediaType, errors.RecordTooLarge]
        if self.leader is not Leader.ANY:
            found += [errors.NoLeader]
        if is_write and self.leader not in (Leader.ANY, Leader.METADATA):
            found += [errors.CommitUnknown]
        return tuple(dict.fromkeys(found))


def _quoted(value: str) -> str:
    return quote(value, safe="@", errors="surrogatepass")
