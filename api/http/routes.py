"""Binds operations to handlers and parameters in a route table, for routing and documentation.

A ``Route`` binds an operation of the contract (``raftlog.wire.operation``) to its handler and adds the
parameters of the path and the query. ``documentation`` describes the routes, so that the served document
cannot disagree with the code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, TypeVar

import msgspec
from aiohttp import web

from api.http import pagination, parameters
from api.http.batching import RequestBatcher
from api.http.disconnects import DisconnectWatcher
from api.http.requests import Found, Request
from api.http.shared_reads import EventStreams
from broker.listeners.admission import Admission
from broker.ports import Limits, Services
from partitions.metadata.image import MetadataImage, TopicInfo
from partitions.routing.confirmed_topics import CONFIRM_MS
from raftlog.errors import (
    HeadersTooLarge,
    InvalidRequest,
    MalformedRequest,
    MisdirectedRequest,
    NoLeader,
    NotAcceptable,
    OriginNotAllowed,
    Overloaded,
    PartitionNotFound,
    QuotaExceeded,
    RaftlogError,
    RequestTimeout,
    TopicNotFound,
    UriTooLong,
)
from raftlog.types import TopicPartition
from raftlog.wire import headers, media_types
from raftlog.wire.limits import NAME_CHARACTERS_MAX
from raftlog.wire.operation import TEXT, Operation, Schema

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a route. Path parameters are always required.

    ``schema`` may depend on the settings. A list is sent by repeating the parameter.
    """

    name: str
    description: str
    schema: Schema | Callable[[Limits], Schema] = field(default_factory=lambda: TEXT)
    place: Literal["query", "header", "path"] = "query"
    is_list: bool = False

    def schema_for(self, limits: Limits) -> Schema:
        """Return the schema of the parameter for a broker with these limits."""
        return self.schema(limits) if callable(self.schema) else self.schema


CAPPED: Final = {"wait": headers.WAIT_CAPPED, "timeout": headers.TIMEOUT_CAPPED}
"""The response header that reports a reduced time, by the name of the parameter."""


@dataclass(slots=True)
class Call:
    """One request, as its handler sees it. ``target`` is set once the partition of the request is known.

    ``shared`` are the CORS headers of the response; ``capped`` has the headers that report reduced times.
    """

    request: Request
    services: Services
    admission: Admission
    disconnect_watcher: DisconnectWatcher
    batcher: RequestBatcher
    streams: EventStreams
    request_id: str
    route: str = "(none)"
    match_info: Mapping[str, str] = field(default_factory=dict)
    partition_number: int | None = None  # the number in the path, if it has one
    media_type: str = media_types.JSON
    query: Mapping[str, str] = field(default_factory=dict)
    target: TopicPartition | None = None
    shared: Mapping[str, str] = field(default_factory=dict)
    capped: dict[str, str] | None = None
    found: Found = field(default_factory=dict)
    is_plain: bool = False  # true if the fast path read it

    def from_head(self, read: Callable[[Call], T]) -> T:
        """Return the result of ``read``, which depends only on the head of the request and is kept for equal
        heads.
        """
        known: T | None = self.found.get(read)
        if known is None:
            known = self.found[read] = read(self)
        return known

    async def metadata(self) -> MetadataImage:
        """Return the metadata of this broker. Raises ``NoLeader`` if the broker has no metadata and receives
        none.

        Otherwise a broker that has lost its files would report all topics and brokers as missing. A broker of
        a new cluster, whose first controller has not stored the cluster's id yet, would issue tokens without
        a cluster.
        """
        controller = self.services.controller
        if controller.image.cluster_id:
            return controller.image
        image = await controller.current_image(CONFIRM_MS)
        if not image.cluster_id:
            raise NoLeader("the cluster has no id yet: its first controller is starting; retry")
        return image

    @property
    def is_path_known(self) -> bool:
        """Whether this broker's metadata has the topic and partition of the path, if the path has any."""
        topic = self.match_info.get("topic")
        return topic is None or self.services.topics.has(topic, self.partition_number or 0)

    async def hear_of_path(self) -> None:
        """Return once this broker's metadata has the topic and partition of the path, or is confirmed without
        them.

        Does nothing for a path without a topic; see ``ConfirmedTopics.hear_of``.
        """
        if (topic := self.match_info.get("topic")) is not None:
            await self.services.topics.hear_of([(topic, self.partition_number or 0)])

    def topic(self) -> TopicInfo:
        """Return the topic of the path. Raises ``TopicNotFound``."""
        name = self.match_info["topic"]
        found = self.services.controller.image.topics.get(name)
        if found is None:
            raise TopicNotFound(
                f"there is no topic {name[:250]!r}; GET /v1/topics lists them", topic=name[:250]
            )
        return found

    def partition(self) -> tuple[TopicInfo, TopicPartition]:
        """Return the topic and the partition of the path.

        Raises ``TopicNotFound`` and ``PartitionNotFound``.
        """
        topic = self.topic()
        count, number = len(topic.partitions), self.partition_number
        if number is None or number >= count:
            text = self.match_info["partition"]
            raise PartitionNotFound(
                f"{topic.name} has the partitions 0 to {count - 1}, not {text[:32]!r}",
                topic=topic.name,
                partition=text[:32],
            )
        self.target = target = TopicPartition(topic.name, number)
        return topic, target

    def wait_ms(self) -> int:
        """Return the time for which the request may wait, in milliseconds."""
        return self.capped_ms("wait", self.services.limits.wait_ms_max, 0)

    def capped_ms(self, name: str, high_ms: int, default_ms: int) -> int:
        """Return a time from the query, in milliseconds. A time above ``high_ms`` is reduced to it, and a
        response header reports this.
        """
        wanted_ms = parameters.duration_ms(self.query, name, default_ms)
        if wanted_ms <= high_ms:
            return wanted_ms
        self.capped = {CAPPED[name]: parameters.duration_text(high_ms)}
        return high_ms

    def stamp(self, response: web.StreamResponse) -> None:
        """Add the headers that every response has."""
        added = response.headers
        added[headers.REQUEST_ID] = self.request_id
        added[headers.METADATA_VERSION] = str(self.services.controller.image.version)
        if self.capped:
            added.update(self.capped)
        if self.shared:
            added.update(self.shared)
        if self.target is not None and (address := self._leader_address(self.target)) is not None:
            added[headers.LEADER] = address

    def _leader_address(self, target: TopicPartition) -> str | None:
        try:
            return self.services.address_of(self.services.gateway.leader_of(target), self.request.scheme)
        except RaftlogError:
            return None  # the topic was deleted during the request


Handler = Callable[[Call], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Route:
    """An operation and its handler. If it is not ``negotiated``, the response does not depend on ``Accept``.

    ``is_streamed`` means that a successful response is sent while it is generated.
    """

    operation: Operation[Any]
    handler: Handler
    parameters: tuple[Parameter, ...] = ()
    negotiated: bool = True
    is_streamed: bool = False

    @property
    def method(self) -> str:
        """The method of the operation."""
        return self.operation.method

    @property
    def path(self) -> str:
        """The path of the operation, with fields in braces."""
        return self.operation.path

    @property
    def errors(self) -> tuple[type[RaftlogError], ...]:
        """The errors of the operation, and the errors of reading any request."""
        of_body = (RequestTimeout, Overloaded, QuotaExceeded) if self.operation.bodies else ()
        of_head = (MalformedRequest, UriTooLong, HeadersTooLarge)
        of_write = () if self.method == "GET" else (OriginNotAllowed,)
        of_answer = (NotAcceptable,) if self.negotiated else ()
        general = (InvalidRequest, *of_answer, MisdirectedRequest, *of_write, *of_head, *of_body)
        return (*self.operation.all_errors, *general)

    @cached_property
    def query_names(self) -> frozenset[str]:
        """Names of the query parameters of this route."""
        return frozenset(parameter.name for parameter in self.parameters if parameter.place == "query")

    @cached_property
    def list_names(self) -> frozenset[str]:
        """Names of the query parameters that may be repeated."""
        return frozenset(parameter.name for parameter in self.parameters if parameter.is_list)

    @cached_property
    def media_types(self) -> tuple[str, ...]:
        """The media types of successful responses; the first is the default."""
        kinds = dict.fromkeys(kind for answer in self.operation.answers.values() for kind in answer.bodies)
        return tuple(kinds) or (media_types.JSON,)


def duration(name: str, description: str, default_of: Callable[[Limits], int]) -> Parameter:
    """Create the parameter for a time that ``Call.capped_ms`` reads; its default is in milliseconds."""

    def schema(limits: Limits) -> Schema:
        default = parameters.duration_text(default_of(limits))
        return {"type": "string", "pattern": parameters.DURATION_PATTERN, "default": default}

    return Parameter(
        name,
        f"{description}; a longer time than the broker allows is reduced: `{CAPPED[name]}`",
        schema,
    )


def partition_number(match_info: Mapping[str, str]) -> int | None:
    """Return the number of the partition in a path; None if the path has no partition, or its text is not a
    number.
    """
    text = match_info.get("partition", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def json_response(
    body: msgspec.Struct, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return a response with a JSON body."""
    return web.Response(
        status=status,
        body=msgspec.json.encode(body),
        headers={"Content-Type": media_types.JSON, **(headers or {})},
    )


TOPIC = Parameter("topic", "name of a topic", {"type": "string", "maxLength": NAME_CHARACTERS_MAX}, "path")
PARTITION = Parameter("partition", "number of a partition", {"type": "integer", "minimum": 0}, "path")
LIMIT = Parameter("limit", "maximum number of items", pagination.LIMIT.schema)
PAGE_TOKEN = Parameter("page_token", "`next_page_token` of the previous page")
IF_MATCH = Parameter("If-Match", "the `ETag` that the resource must still have, or `*`", place="header")
ISOLATION = Parameter(
    "isolation",
    "`committed` shows the records of a transaction once it is committed; `uncommitted` also shows the "
    "records of open and aborted transactions",
    {"type": "string", "enum": list(parameters.ISOLATION), "default": parameters.ISOLATION[0]},
)
ROUTE = Parameter(
    "route",
    "behaviour of a broker that does not lead the partition: `forward` (the default) forwards the "
    "request, `redirect` returns 307, `none` returns 421",
    {"type": "string", "enum": ["forward", "redirect", "none"], "default": "forward"},
)
