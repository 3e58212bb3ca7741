"""The command ``cluster plan``: balances replicas and leaders."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from api.cli.connection import connected
from api.cli.output import (
    DEFAULT_SERVER,
    ServerOption,
    errors_reported,
    is_json,
    note,
    show,
    write_json,
    wrong_usage,
)
from api.cli.parameters import Option
from api.cli.tables import Row, size_text
from raftlog.units import counted

if TYPE_CHECKING:
    from raftlog.client import Client
    from raftlog.wire.plans import PlanDescription

LOOK_S: Final = 0.5


def plan(
    apply: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Carry out the plan in this file; - for stdin.",
        ),
    ] = None,
    status: Annotated[bool, Option(help="Show the plan that is being carried out.")] = False,
    cancel: Annotated[
        bool, Option(help="Cancel the plan that is being carried out: no further move begins.")
    ] = False,
    wait: Annotated[bool, Option(help="With --apply or --status: return when the plan has ended.")] = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Show the moves that balance the brokers, and carry them out.

    Without options nothing moves. With --apply the moves in the file, which is output of -o json, are carried
    out, a few at a time. If a partition in the file has changed since then, the plan is refused: create
    another plan.

    \b
    Example:
      raftlog cluster plan
      raftlog cluster plan -o json > plan.json
      raftlog cluster plan --apply plan.json --wait
    """
    if sum((apply is not None, status, cancel)) > 1:
        wrong_usage("--apply, --status and --cancel exclude each other")
    if wait and (cancel or (apply is None and not status)):
        wrong_usage("--wait needs --apply or --status")
    content = None if apply is None else _read(apply)
    with errors_reported(changing=apply is not None or cancel), connected(server) as client:
        if content is not None:
            found = client.cluster.start_plan(content)
        elif cancel:
            found = client.cluster.cancel_plan()
        else:
            found = client.cluster.plan() if status else client.cluster.propose_plan()
        if wait:
            found = _ended(client, found)
        _show(found, has_ended=wait)


def _read(path: str) -> PlanDescription:
    import msgspec

    from raftlog.wire.decoding import UNREADABLE
    from raftlog.wire.plans import PlanDescription

    try:
        text = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return msgspec.json.decode(text, type=PlanDescription)
    except OSError as error:
        wrong_usage(f"--apply: {error}")
    except UNREADABLE as error:
        wrong_usage(f"--apply: {path} is not a plan of `raftlog cluster plan -o json`: {error}")


def _ended(client: Client, found: PlanDescription) -> PlanDescription:
    """Wait until the plan has ended; return its last description from before the end."""
    import time

    number = found.plan
    while number is not None:
        shown = client.cluster.plan()
        if shown.plan != number:
            return found
        found = shown
        time.sleep(LOOK_S)
    return found


def _show(plan: PlanDescription, *, has_ended: bool) -> None:
    import msgspec

    if is_json():
        write_json(msgspec.to_builtins(plan))
        return
    if has_ended:
        note("no plan is being carried out" if plan.plan is None else f"plan {plan.plan} has ended")
        return
    rows: list[Row] = [
        {
            "partition": f"{move.topic}/{move.partition}",
            "replicas": move.replicas,
            "target": move.target,
            "size_bytes": move.size_bytes,
            "state": move.state,
        }
        for move in plan.moves
    ]
    if rows:
        show(rows)
    note(_words(plan))


def _words(plan: PlanDescription) -> str:
    if not plan.moves:
        return "no moves are needed"
    moves = counted(len(plan.moves), "move")
    if plan.plan is None:
        work = f"{size_text(plan.size_bytes)} to copy, in about {plan.expected_ms / 1000:.0f} s"
        return f"{moves}, {work}; nothing has begun"
    left = sum(move.state in ("pending", "moving") for move in plan.moves)
    waits = f"; it waits for brokers {plan.waits_for}" if plan.waits_for else ""
    return f"plan {plan.plan}: {left} of {moves} left{waits}"
