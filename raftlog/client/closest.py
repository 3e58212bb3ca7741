"""Reads from the replica in the reader's rack instead of the leader.

Decides: which broker a reader with a rack asks first, and for how long it asks the leader instead after a
replica could not serve. Leaves to others: finding the leader (``metadata``), and whether a replica is in
sync, which the replica's broker decides.

A replica that could not serve is avoided for a time that doubles with each further failure, so that a reader
does not alternate between two brokers. Offsets mean the same at all replicas: no record is read twice or
skipped.
"""

from __future__ import annotations

from typing import Final

from raftlog.client.logs import client_logger
from raftlog.client.metadata import Metadata
from raftlog.client.reader_place import ReaderPlace
from raftlog.client.replies import Reply
from raftlog.client.session import Session
from raftlog.errors import RaftlogError
from raftlog.wire import headers, media_types

AVOIDED_MIN_S: Final = 2.0
AVOIDED_MAX_S: Final = 60.0
WAIT_MS_MAX: Final = 3_000  # wait of one request, so that a silent broker is noticed
PATIENCE_S: Final = 2.0  # time for the response, in addition to the broker's wait
_log = client_logger()


class ClosestReplica:
    """The replica of one partition that is closest to a reader."""

    def __init__(
        self, session: Session, metadata: Metadata, topic: str, partition: int, place: ReaderPlace
    ) -> None:
        self._session = session
        self._metadata = metadata
        self._topic = topic
        self._partition = partition
        self._place = place
        self._avoided_until_s = 0.0
        self._avoided_s = AVOIDED_MIN_S

    async def ask(self, path: str, offset: int, wait_ms: int, answer_bytes_max: int) -> Reply | None:
        """The replica's response to a fetch of ``path``; None if the leader must serve.

        ``path`` has no parameter ``wait``: this call adds it.
        """
        clock = self._session.clock
        ends_at = clock.monotonic() + wait_ms / 1_000
        while (url := await self._url()) is not None:
            left_ms = min(WAIT_MS_MAX, max(0, round((ends_at - clock.monotonic()) * 1_000)))
            within = f"max_staleness={self._place.max_staleness_ms}ms"
            query = f"&wait={left_ms}ms&route=none&read_from=closest&{within}"
            try:
                reply = await self._session.ask(
                    "GET",
                    url + path + query,
                    accept=media_types.BATCH,
                    timeout_s=left_ms / 1_000 + PATIENCE_S,
                    answer_bytes_max=answer_bytes_max,
                )
            except RaftlogError as error:
                self._refused(url, error)
                return None
            self._avoided_s = AVOIDED_MIN_S
            is_over = clock.monotonic() >= ends_at
            if reply.body or is_over or reply.number(headers.NEXT_OFFSET, offset) != offset:
                return reply
        return None

    async def _url(self) -> str | None:
        """The address of the replica to ask; None if the leader must serve."""
        if self._session.clock.monotonic() < self._avoided_until_s:
            return None
        try:
            view = await self._metadata.topic(self._topic)
        except RaftlogError:
            return None  # the request to the leader reports the error
        if self._partition >= view.partition_count:
            return None
        near = view.replicas[self._partition].get(self._place.rack, ())
        return (
            None if not near or view.leaders[self._partition] in near else near[self._partition % len(near)]
        )

    def _refused(self, url: str, error: RaftlogError) -> None:
        _log.info(
            "reading %s/%d from its leader for %.0f s: the replica at %s could not serve: %s",
            *(self._topic, self._partition, self._avoided_s, url, error),
        )
        self._avoided_until_s = self._session.clock.monotonic() + self._avoided_s
        self._avoided_s = min(AVOIDED_MAX_S, 2 * self._avoided_s)
