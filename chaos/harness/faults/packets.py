"""Faults that drop packets between brokers in separate network namespaces.

Connections stay open and report no error, so timeouts have to detect the fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from chaos.harness.arena import Arena, Draw
from chaos.harness.faults.steps import Steps, until_effective
from chaos.harness.links import Link
from chaos.harness.namespaces import Flow


def drop_all(arena: Arena, draw: Draw) -> Steps:
    """All packets to and from a broker are dropped; its connections stay open."""
    address = _address(arena, draw.broker())
    return (yield from _dropped(arena, f"broker at {address}", [Flow(source=address), Flow(target=address)]))


def drop_sent(arena: Arena, draw: Draw) -> Steps:
    """Packets that a broker sends are dropped; it still receives packets."""
    address = _address(arena, draw.broker())
    return (yield from _dropped(arena, f"sent by {address}", [Flow(source=address)]))


def drop_link(arena: Arena, draw: Draw) -> Steps:
    """Packets of one direction between two brokers are dropped."""
    assert arena.links is not None
    link: Link = draw.rng.choice([link for link in arena.links.all if link.source])
    flow = Flow(source=_address(arena, link.source), target_port=arena.links.port(link))
    return (yield from _dropped(arena, str(link), [flow]))


def lose_packets(arena: Arena, draw: Draw) -> Steps:
    """Some percent of the packets to and from a broker are lost, at random."""
    address, percent = _address(arena, draw.broker()), draw.rng.choice((1, 5, 15, 30))
    flows = [Flow(source=address), Flow(target=address)]
    return (yield from _dropped(arena, f"{percent} % at {address}", flows, percent))


def unplug(arena: Arena, draw: Draw) -> Steps:
    """The network cable of a broker is unplugged, and plugged in again at the end."""
    assert arena.network is not None
    broker = draw.broker()
    with arena.hold(broker):  # the harness does not reach the broker either
        arena.network.unplug(broker)
        try:
            yield f"broker {broker}"
        finally:
            arena.network.plug(broker)
    return 1


def _address(arena: Arena, broker: int) -> str:
    assert arena.network is not None, "a fault that needs namespaces was begun without them"
    return arena.network.address(broker)


def _dropped(arena: Arena, target: str, flows: Sequence[Flow], percent: int = 100) -> Steps:
    """Drop packets of these flows until the fault ends; return the number of dropped packets."""
    assert arena.network is not None
    packets = 0
    with ExitStack() as stack:
        drops = [arena.network.drop(flow, percent) for flow in flows]
        for drop in drops:
            stack.callback(drop.stop)
        yield target
        packets = until_effective(lambda: sum(drop.packets() for drop in drops))
    return packets
