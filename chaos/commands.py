"""``raftlog chaos``: commands of the fault injection."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import click

from api.cli.output import REFUSED, Format, OutputOption, show, wrong_usage
from api.cli.parameters import Argument

HistoryArgument = Annotated[
    Path,
    Argument(
        metavar="HISTORY",
        path=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A history: JSON lines, or history.edn of Jepsen.",
    ),
]


def check(history: HistoryArgument, output: OutputOption = Format.TABLE) -> None:
    """Check a history for anomalies; ends with 1 if there are any.

    A history has one operation a line, as docs/chaos.md shows. A file named *.edn is one of Jepsen's
    workload for Kafka-like logs.

    \b
    Examples:
      raftlog chaos check history.jsonl
      raftlog chaos check store/latest/history.edn
    """
    from chaos.checkers import check as anomalies_of
    from chaos.history import Outcome
    from chaos.history_files import InvalidHistory, read_history

    try:
        found = read_history(history)
    except InvalidHistory as error:
        wrong_usage(str(error))
    anomalies = anomalies_of(found)
    rows = [
        {"anomaly": anomaly.kind, "partition": anomaly.partition, "detail": anomaly.detail}
        for anomaly in anomalies
    ]
    show(rows, output)
    kinds = Counter(anomaly.kind for anomaly in anomalies)
    click.echo(
        f"verdict={'invalid' if anomalies else 'valid'} acknowledged={found.count(Outcome.ACKNOWLEDGED)} "
        f"unknown={found.count(Outcome.UNKNOWN)} lost={kinds['lost write']} "
        f"duplicated={kinds['duplicate']} anomalies={len(anomalies)}",
        err=True,
    )
    if anomalies:
        raise click.exceptions.Exit(REFUSED)
