"""An operation of the HTTP API: the facts that server, OpenAPI document and clients share.

Each operation is a constant in the module of its resource. Leaves to others: the broker's handling
(``api.resources``), query parameters and headers (their defaults are settings of the broker), and the methods
of the clients (``raftlog.client``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final, Generic, TypeVar, cast
from urllib.parse import quote

import msgspec

from raftlog import errors
from raftlog.errors import RaftlogError
from raftlog.wire import media_types

Schema = Mapping[str, object]
BodyType = type[msgspec.Struct] | tuple[type[msgspec.Struct], ...] | Schema
"""The type of a body: a struct, a union of structs, or a JSON schema for a media type other than JSON."""

BINARY: Final[Schema] = {"type": "string", "format": "binary"}
TEXT: Final[Schema] = {"type": "string"}

STORED: Final = (errors.Overloaded, errors.StorageFull, errors.NotEnoughReplicas)
"""Errors of every operation that stores a row in an internal topic."""


class Nothing(msgspec.Struct):
    """The answer of an operation that returns no JSON body."""


Reply_co = TypeVar("Reply_co", covariant=True)


class Leader(StrEnum):
    """The broker that carries an operation out; other brokers forward the request to it."""

    ANY = "any"
    METADATA = "metadata"  # any broker that has received the metadata of the cluster
    CONTROLLER = "controller"
    PARTITION = "partition"
    GROUP = "group"  # the coordinator of the group
    TRANSACTION = "transaction"  # the coordinator of the transaction
    DELAYED = "delayed"  # the coordinator of the delayed message or the schedule


@dataclass(frozen=True, slots=True)
class Success:
    """A successful response: its bodies by media type and its headers."""

    description: str
    bodies: Mapping[str, BodyType] = field(default_factory=dict)
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Operation(Generic[Reply_co]):
    """An operation: a method and a path.

    ``name`` is ``<resource>.<verb>``, the operation id in the OpenAPI document. ``request`` is the method and
    the path, such as ``GET /v1/topics/{topic}``; ``at`` fills in the fields of the path. ``body`` is the JSON
    body of a request, ``other_bodies`` are the bodies of other media types. ``success`` has the successful
    responses by status. A text there describes a response with ``answer`` as its JSON body and with
    ``headers``; a response of status 204 has no body.

    ``errors`` lists the errors that ``all_errors`` does not derive from the other fields. ``may_repeat`` is
    False if a client must not send the request again after an unknown outcome, as the repetition could undo a
    change that was made in between.
    """

    name: str
    request: str
    summary: str
    text: str = ""
    leader: Leader = Leader.ANY
    body: type[msgspec.Struct] | None = None
    body_required: bool = True
    other_bodies: Mapping[str, Schema] = field(default_factory=dict)
    answer: type[Reply_co]
    success: Mapping[int, str | Success]
    headers: tuple[str, ...] = ()
    errors: tuple[type[RaftlogError], ...] = ()
    may_repeat: bool = True

    @cached_property
    def method(self) -> str:
        """The method, such as ``GET``."""
        return self.request.partition(" ")[0]

    @cached_property
    def path(self) -> str:
        """The path, with fields in braces."""
        return self.request.partition(" ")[2]

    def at(self, **fields: str | int) -> str:
        """The path with its fields in braces replaced by ``fields``, percent-encoded.

        The server refuses names that UTF-8 cannot encode.
        """
        return self.path.format_map(
            {name: value if isinstance(value, int) else _quoted(value) for name, value in fields.items()}
        )

    @property
    def bodies(self) -> Mapping[str, BodyType]:
        """The request bodies by media type."""
        of_json: dict[str, BodyType] = {} if self.body is None else {media_types.JSON: self.body}
        return {**of_json, **self.other_bodies}

    @property
    def answers(self) -> Mapping[int, Success]:
        """The successful responses by status."""
        return {
            status: self._answer(status, shown) if isinstance(shown, str) else shown
            for status, shown in self.success.items()
        }

    def _answer(self, status: int, description: str) -> Success:
        body = cast("type[msgspec.Struct]", self.answer)
        return Success(description, {} if status == 204 else {media_types.JSON: body}, self.headers)

    @property
    def all_errors(self) -> tuple[type[RaftlogError], ...]:
        """The errors of this operation, without the errors that any HTTP request may get."""
        is_write = self.method != "GET"
        found = [*self.errors]
        if "{partition}" in self.path:
            found += [errors.TopicNotFound, errors.PartitionNotFound]
        if self.body is not None:
            found += [errors.UnsupportedMediaType, errors.RecordTooLarge]
        if self.leader is not Leader.ANY:
            found += [errors.NoLeader]
        if is_write and self.leader not in (Leader.ANY, Leader.METADATA):
            found += [errors.CommitUnknown]
        return tuple(dict.fromkeys(found))


def _quoted(value: str) -> str:
    return quote(value, safe="@", errors="surrogatepass")
