"""Connects the brokers of one run with their checkers.

Decides: which checkers observe which events of a machine. Leaves to others: clients, faults and the phases of
the run (``simulation``).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TypeVar, Unpack

from broker.broker import Broker
from broker.listeners.listener import Listener
from raftlog.types import NodeId
from verification.simulator.checker import Checker
from verification.simulator.clocks import Clocks
from verification.simulator.event_loop import Process
from verification.simulator.incarnations import Incarnations
from verification.simulator.log_starts import LogStarts
from verification.simulator.machine import Machine
from verification.simulator.odds import Odds
from verification.simulator.part import Part
from verification.simulator.response_checks import ResponseChecks
from verification.simulator.run import Run, RunOptions

P = TypeVar("P", bound=Part)


class SimulatedCluster(Run):
    """Machines and checkers of a run. A subclass that overrides the method for an event must call this
    class's method first.
    """

    def __init__(self, seed: int, odds: Odds | None = None, **options: Unpack[RunOptions]) -> None:
        super().__init__(seed, odds, **options)
        self.machines = [Machine(self, NodeId(number), self) for number in range(1, self.odds.brokers + 1)]
        self.clocks = Clocks(self, self.machines)
        self.checker = Checker(self.clocks, self.violated)
        self.incarnations = Incarnations(self.checker, self.violated)
        self.responses = ResponseChecks(self.checker, self.machines, self.violated)
        self.log_starts = LogStarts(self, self.machines, self.checker)
        self.parts: list[Part] = []  # of the scenarios of the run
        self._by_process: dict[Process, Machine] = {}
        self.network.on_arrival = self.trace.frame
        self.checker.on_log_start = self.log_starts.moved
        self.checker.on_changed = self.log_starts.changed
        self.checker.on_opened = self.incarnations.opened
        for machine in self.machines:
            machine.disk.lies_about_syncs = self.odds.lies_about_syncs
            machine.rate = self.odds.rates[machine.node - 1]

    def part(self, kind: type[P]) -> P | None:
        """Return the part of a scenario in this run; None if the run does not have the scenario."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    @property
    def members(self) -> list[Machine]:
        """The machines of all brokers except permanently removed brokers."""
        return [machine for machine in self.machines if not machine.is_removed]

    def add_machine(self, node: NodeId) -> Machine:
        """Add a machine, which is off, for a broker that joins."""
        machine = Machine(self, node, self)
        machine.disk.lies_about_syncs = self.odds.lies_about_syncs
        self.machines.append(machine)
        return machine

    def stepped(self, process: Process) -> None:
        """Check a broker whose host has drained its groups."""
        machine = self._by_process.get(process)
        if machine is not None:
            self.checker.stepped(machine)

    def held(self, machine: Machine) -> Iterable[tuple[str, int]]:
        """Resources that a broker holds for the scenarios of the run, by name."""
        return chain.from_iterable(part.held(machine) for part in self.parts)

    # Events of machines.

    def starts(self, machine: Machine) -> None:
        self.clocks.starts(machine)

    def began(self, machine: Machine, process: Process) -> None:
        self._by_process[process] = machine

    def made(self, machine: Machine, broker: Broker) -> None:
        """Set up the checkers of a broker that is about to start."""
        broker.controller.subscribe(lambda image: self.incarnations.shown(machine, image))

    async def serves(self, machine: Machine, broker: Broker) -> Listener | None:
        """Handle a broker that has started; returns its HTTP listener, if any."""
        return None

    def ended(self, machine: Machine, process: Process, *, silently: bool) -> None:
        """Handle a process that has ended."""

    def start_again(self) -> None:
        """Start a machine that is off, unless a scheduled fault keeps it off."""

    def died(self, machine: Machine) -> None:
        """Handle a process that was killed; its disk keeps unsynced data."""
        self.checker.died(machine)

    def lost_power(self, machine: Machine) -> None:
        """Handle a machine that is off, and whose disk has lost some of its unsynced data."""
        self.checker.lost_power(machine)
        self.checker.died(machine)

    def files_removed(self, machine: Machine, path: str) -> None:
        """Handle a file or a folder that a broker has removed."""
        self.checker.files_removed(machine, path)

    def begins_again(self, machine: Machine) -> None:
        """Handle a broker whose disk is recognised as an older copy."""
