"""Commands about transactions: ``transaction list``, ``describe`` and ``abort``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from api.cli.connection import connected, reading
from api.cli.output import (
    DEFAULT_SERVER,
    ServerOption,
    done,
    errors_reported,
    is_json,
    show,
    write_json,
    write_table,
    wrong_usage,
)
from api.cli.parameters import Argument, Option
from api.cli.tables import Row, time_text

if TYPE_CHECKING:
    from raftlog.wire.transactions import TransactionDescription

_COLUMNS = ("transaction", "state", "partitions", "groups", "timeout_ms", "began_at")


def list_all(
    all_ids: Annotated[
        bool, Option("--all", help="Also list the newest transaction of ids without an open one.")
    ] = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """List the open transactions.

    \b
    Example:
      raftlog transaction list
    """
    with errors_reported(), reading(server) as ask:
        import msgspec

        found = ask(ask.transactions.list(open_only=not all_ids))
        none = "there are no transactions" if all_ids else "there are no open transactions"
        show([_row(one) for one in found], _COLUMNS, value=msgspec.to_builtins(found), empty=none)


def describe(
    transaction: Annotated[str, Argument(help="The id of a transaction, or a transactional id.")],
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Show a transaction, its state and its partitions.

    \b
    Examples:
      raftlog transaction describe copy-1
      raftlog transaction describe copy-1@4711.0
    """
    with errors_reported(), reading(server) as ask:
        import msgspec

        found = ask(ask.transactions.describe(transaction))
        if is_json():
            write_json(msgspec.to_builtins(found))
            return
        write_table([_row(found)], _COLUMNS)
        if found.partitions:
            write_table(
                [
                    {"topic": each.topic, "partition": number}
                    for each in found.partitions
                    for number in each.partitions
                ]
            )


def abort(
    transactional_id: Annotated[str, Argument(help="The transactional id, without @ and a number.")],
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Abort the open or prepared transaction of a transactional id.

    \b
    Example:
      raftlog transaction abort copy-1
    """
    if "@" in transactional_id:
        wrong_usage(f"give only the transactional id: {transactional_id.partition('@')[0]}")
    with errors_reported(changing=True), connected(server) as client:
        found = client.transactions.abort(transactional_id)
        text = f"{transactional_id} has no open transaction; its next transaction is {found.id}"
        done(text, transactional_id=transactional_id, next=found.id)


def _row(found: TransactionDescription) -> Row:
    return {
        "transaction": found.id,
        "state": found.state,
        "partitions": sum(len(each.partitions) for each in found.partitions),
        "groups": " ".join(found.groups),
        "timeout_ms": found.timeout_ms,
        "began_at": time_text(found.began_at),
        "changed_at": time_text(found.changed_at),
    }
