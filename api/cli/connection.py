"""Opens the connection of a command to a cluster.

Decides: how long a command tries to reach a broker, and how long it waits for an election. Leaves to others:
all requests (the client).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from api.cli.imports import tls_only_for
from api.cli.output import options_checked
from raftlog.errors import ConnectionLost, NotSent, RaftlogError, TopicNotFound

if TYPE_CHECKING:
    from api.cli.reading import Reading
    from raftlog.client import Client
    from raftlog.wire.bodies import TopicDescription

PROBE_TIMEOUT = "3s"  # timeout of one address
RETRY_TIMEOUT = "15s"


@contextmanager
def connected(server: str, rack: str | None = None) -> Iterator[Client]:
    """Open a client of the cluster once a broker has answered. Raises ``NotSent`` if no broker answers.

    If a topic does not exist, the error suggests the most similar name.

    The first request separates two waits. If no broker is reachable, the command fails after seconds; if a
    partition has no leader at the moment, the command waits longer.
    """
    with tls_only_for(server):
        from raftlog.client import Client
        from raftlog.client.options import seconds

    with options_checked():
        every = timedelta(seconds=seconds("probe", PROBE_TIMEOUT)) * (1 + server.count(","))
        probe = Client(server, request_timeout=PROBE_TIMEOUT, retry_timeout=every, rack=rack)
    with probe:
        try:
            probe.cluster.describe()
        except (NotSent, ConnectionLost) as error:
            raise unreachable(server, error) from error
    with Client(server, retry_timeout=RETRY_TIMEOUT, rack=rack) as client:
        try:
            yield client
        except TopicNotFound as error:
            raise with_likely_name(client.topics.list(), error) from error


@contextmanager
def reading(server: str) -> Iterator[Reading]:
    """Open a connection for a command that only reads. Raises ``NotSent`` if no broker can be reached.

    If a topic does not exist, the error suggests the most similar name.
    """
    from api.cli.reading import Reading

    with options_checked():
        ask = Reading(server)
    try:
        yield ask
    except (NotSent, ConnectionLost) as error:
        raise error if ask.was_reached else unreachable(server, error) from error
    except TopicNotFound as error:
        raise with_likely_name(ask(ask.topics.list()), error) from error
    finally:
        ask.close()


def unreachable(server: str, error: RaftlogError) -> NotSent:
    """The error for a cluster in which no broker answers."""
    return NotSent(
        f"no broker answers at {server}; start a cluster with `raftlog dev`, "
        f"or give the address of a broker with --server or RAFTLOG_URL ({error})"
    )


def with_likely_name(topics: Sequence[TopicDescription], error: TopicNotFound) -> TopicNotFound:
    """Return the error with the most similar topic name in its message."""
    from raftlog.client.topic_names import nearest

    name = str(error.details.get("topic"))
    likely = nearest(name, [topic.name for topic in topics])
    hint = "" if likely is None else f"did you mean {likely!r}? "
    return TopicNotFound(
        f"there is no topic {name!r}; {hint}`raftlog topic list` shows all topics", **error.details
    )
