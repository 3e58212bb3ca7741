"""Production clients and the production HTTP server in a simulated cluster, connected by simulated TCP.

Decides: the behaviour of sockets (``streams``) and clients (``producers``, ``readers``, ``raw_producers``,
``raw_readers``), and the checks of every response (``wire``, ``checker``). Leaves to others: brokers and
their faults (``machine``, ``faults``), and the relations between several responses (``chaos.checkers``).

Read ``side`` and ``clients`` first; ``part`` adds both to a run.
"""

from __future__ import annotations

from typing import Final

from verification.simulator.scenario import Scenario
from verification.simulator.scenarios.http.odds import HttpOdds, draw
from verification.simulator.scenarios.http.part import Http

SCENARIO: Final = Scenario(own=HttpOdds, draw=draw, begin=Http)
