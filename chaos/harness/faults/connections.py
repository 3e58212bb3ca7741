"""Faults of links, which the proxies between all processes cut, slow down or damage."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Final

from chaos.harness.arena import Arena, Draw, NoTarget
from chaos.harness.faults.steps import Steps, until_effective
from chaos.harness.links import Link, Links
from raftlog.testing.waits import LIMIT_S

UPSTREAM: Final = "upstream"  # bytes from the side that dialled
DOWNSTREAM: Final = "downstream"
SLOW_CLOSE: Final = "slow_close"


def isolate(arena: Arena, draw: Draw) -> Steps:
    """One broker is cut off from all others; clients still reach it."""
    broker = draw.broker()
    links = _links(arena)
    cut = links.between({broker}, set(arena.cluster.brokers) - {broker})
    return (yield from _cut(links, cut, f"broker {broker}"))


def isolate_fully(arena: Arena, draw: Draw) -> Steps:
    """One broker is cut off from all others and from clients."""
    broker = draw.broker()
    links = _links(arena)
    cut = [link for link in links.all if broker in (link.source, link.target)]
    return (yield from _cut(links, cut, f"broker {broker} and its clients"))


def halves(arena: Arena, draw: Draw) -> Steps:
    """A minority is cut off from the majority."""
    brokers = arena.cluster.brokers
    minority = set(draw.some_brokers((len(brokers) - 1) // 2))
    links = _links(arena)
    cut = links.between(minority, set(brokers) - minority)
    return (yield from _cut(links, cut, f"{sorted(minority)} | {sorted(set(brokers) - minority)}"))


def bridge(arena: Arena, draw: Draw) -> Steps:
    """Two sides do not reach each other, and one broker reaches both."""
    middle, *others = draw.rng.sample(arena.cluster.brokers, len(arena.cluster.brokers))
    left, right = set(others[: len(others) // 2]), set(others[len(others) // 2 :])
    links = _links(arena)
    cut = links.between(left, right)
    return (yield from _cut(links, cut, f"{sorted(left)} - {middle} - {sorted(right)}"))


def majority_ring(arena: Arena, draw: Draw) -> Steps:
    """Each broker reaches a different majority."""
    ring = draw.rng.sample(arena.cluster.brokers, len(arena.cluster.brokers))
    reach = len(ring) // 4  # to each side; of five brokers one, which makes three with itself
    links = _links(arena)
    cut = [
        link
        for (a, one), (b, other) in combinations(enumerate(ring), 2)
        if min(b - a, len(ring) - b + a) > reach
        for link in links.between({one}, {other})
    ]
    return (yield from _cut(links, cut, "ring " + " - ".join(map(str, ring))))


def one_way(arena: Arena, draw: Draw) -> Steps:
    """One broker receives from all other brokers, and no broker receives from it."""
    broker = draw.broker()
    links = _links(arena)
    cut = [link for link in links.all if link.source == broker]
    return (yield from _cut(links, cut, f"{broker} -> all"))


def cut_link(arena: Arena, draw: Draw) -> Steps:
    """One direction between two brokers is cut."""
    links = _links(arena)
    link = draw.rng.choice([link for link in links.all if link.source])
    return (yield from _cut(links, [link], str(link)))


def cut_link_for_long(arena: Arena, draw: Draw) -> Steps:
    """Two brokers do not reach each other for a minute or two; all other brokers reach both."""
    one, other = draw.some_brokers(2)
    links = _links(arena)
    return (yield from _cut(links, links.between({one}, {other}), f"{one} | {other}"))


def cut_clients(arena: Arena, draw: Draw) -> Steps:
    """Clients do not reach one broker; other brokers do."""
    link = Link(0, draw.broker())
    return (yield from _cut(_links(arena), [link], f"clients of broker {link.target}"))


def reset(arena: Arena, draw: Draw) -> Steps:
    """New connections of a link are reset after a moment, repeatedly."""
    timeout = draw.rng.choice((0, 50, 500))
    return (yield from _ended(arena, draw, f"after {timeout} ms", "reset_peer", timeout=timeout))


def limit_data(arena: Arena, draw: Draw) -> Steps:
    """Connections of a link end after some kilobytes, often within a frame."""
    size = draw.rng.choice((100, 1_000, 5_000))
    return (yield from _ended(arena, draw, f"after {size} bytes", "limit_data", bytes=size))


def timeout(arena: Arena, draw: Draw) -> Steps:
    """A link passes nothing, and its connections end after a while."""
    after = draw.rng.choice((300, 1500))
    return (yield from _ended(arena, draw, f"after {after} ms", "timeout", timeout=after))


def silence(arena: Arena, draw: Draw) -> Steps:
    """A link passes nothing, and its connections stay open."""
    return (yield from _passing(arena, draw, "silent", "timeout", timeout=0))


def latency(arena: Arena, draw: Draw) -> Steps:
    """Bytes of a link arrive later, by a constant time."""
    delay = draw.rng.choice((20, 50, 200, 1000))
    return (yield from _passing(arena, draw, f"{delay} ms", "latency", latency=delay))


def jitter(arena: Arena, draw: Draw) -> Steps:
    """Bytes of a link arrive later, by changing times."""
    delay = draw.rng.choice((20, 100, 300))
    return (yield from _passing(arena, draw, f"0 to {2 * delay} ms", "latency", latency=delay, jitter=delay))


def bandwidth(arena: Arena, draw: Draw) -> Steps:
    """A link passes some kilobytes a second."""
    rate = draw.rng.choice((10, 50, 200))
    return (yield from _passing(arena, draw, f"{rate} KB/s", "bandwidth", rate=rate))


def slicer(arena: Arena, draw: Draw) -> Steps:
    """Bytes of a link arrive in pieces, with pauses of 0.1 ms."""
    size = draw.rng.choice((10, 100, 1000))
    sizes = {"average_size": size, "size_variation": size // 2}
    return (yield from _passing(arena, draw, f"pieces of {size} bytes", "slicer", **sizes, delay=100))


def slow_close(arena: Arena, draw: Draw) -> Steps:
    """A broker is killed, and the end of its connections arrives late."""
    broker, links = draw.broker(), _links(arena)
    own = [link for link in links.all if broker in (link.source, link.target)]
    with arena.hold(broker), _toxic(links, own, draw, SLOW_CLOSE, delay=draw.rng.choice((1000, 3000))):
        arena.processes.kill(broker)
        open_still = len(links.connections(own))
        yield f"broker {broker}"
        arena.processes.launch(broker)
    return open_still


def _links(arena: Arena) -> Links:
    assert arena.links is not None, "a fault that needs proxies was begun without them"
    return arena.links


def _cut(links: Links, cut: Sequence[Link], target: str) -> Steps:
    """Cut links until the fault ends; return the number of connections that ended.

    Waits for connections first: brokers that are starting have no lasting connections.
    """
    _wait_connected(links, cut, target)
    ended = links.cut(cut)
    try:
        yield target
    finally:
        links.restore(cut)
    return ended


def _wait_connected(links: Links, chosen: Sequence[Link], target: str) -> set[str]:
    """Return the connections of links that stay open. Raises ``NoTarget`` if there are none for a while."""
    deadline = time.monotonic() + LIMIT_S
    while not (lasting := _lasting(links, chosen)):
        if time.monotonic() > deadline:
            raise NoTarget(f"there is no connection: {target}")
    return lasting


def _lasting(links: Links, chosen: Sequence[Link]) -> set[str]:
    """Return the connections of links that stay open for a while.

    A proxy accepts a connection before it finds that the broker behind it is down.
    """
    before = links.connections(chosen)
    time.sleep(0.2)
    return before.keys() & links.connections(chosen).keys()


def _chosen(arena: Arena, draw: Draw) -> list[Link]:
    """Choose links at random: all links of a broker, its links with other brokers, or one of its links."""
    broker, links = draw.broker(), _links(arena)
    own = [link for link in links.all if broker in (link.source, link.target)]
    return draw.rng.choice((own, [link for link in own if link.source], [draw.rng.choice(own)]))


def _passing(arena: Arena, draw: Draw, detail: str, toxic: str, **attributes: int) -> Steps:
    """Add a toxic to links until the fault ends; return the number of bytes that entered the links during the
    fault.
    """
    chosen, links = _chosen(arena, draw), _links(arena)

    def passed_since() -> int:
        return sum(passed - before.get(one, 0) for one, passed in links.connections(chosen).items())

    with _toxic(links, chosen, draw, toxic, **attributes):
        before = links.connections(chosen)
        yield f"{_text(chosen)}, {detail}"
        return until_effective(passed_since)  # toxics act on bytes only


def _ended(arena: Arena, draw: Draw, detail: str, toxic: str, **attributes: int) -> Steps:
    """Add a toxic that ends connections; return how many of the connections that were open at the beginning
    have ended.
    """
    chosen, links = _chosen(arena, draw), _links(arena)
    before = _wait_connected(links, chosen, _text(chosen))
    with _toxic(links, chosen, draw, toxic, **attributes):
        yield f"{_text(chosen)}, {detail}"
        return until_effective(lambda: len(before - links.connections(chosen).keys()))


@contextmanager
def _toxic(links: Links, chosen: Sequence[Link], draw: Draw, kind: str, **attributes: int) -> Iterator[None]:
    """Add a toxic to links for a block: on bytes to the broker. For links of clients, and to delay the ends
    of connections, also on bytes back.
    """
    name = f"{kind}-{draw.seed}"
    added: list[tuple[Link, str]] = []
    try:
        for link in chosen:
            for stream in (UPSTREAM, DOWNSTREAM) if link.source == 0 or kind == SLOW_CLOSE else (UPSTREAM,):
                links.add_toxic(link, f"{name}-{stream}", kind, stream, **attributes)
                added.append((link, f"{name}-{stream}"))
        yield
    finally:
        for link, full_name in added:
            links.remove_toxic(link, full_name)


def _text(links: Sequence[Link]) -> str:
    return ", ".join(map(str, links))
