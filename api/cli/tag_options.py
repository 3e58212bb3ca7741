"""Options of commands that can restrict reading to records with some tags."""

from __future__ import annotations

from typing import Annotated

from api.cli.output import wrong_usage
from api.cli.parameters import Option
from raftlog.records.tags import TagSelection
from raftlog.wire.tags import SEPARATOR, InvalidSelection, checked_selection

TagsOption = Annotated[
    str | None,
    Option(
        "--tags", metavar="TAGS", help="Only messages with at least one of these tags, such as paid,refunded."
    ),
]


TagsAllOption = Annotated[
    str | None, Option("--tags-all", metavar="TAGS", help="Only messages with all of these tags.")
]


TagsNoneOption = Annotated[
    str | None, Option("--tags-none", metavar="TAGS", help="Only messages with none of these tags.")
]


def selection_of(*texts: str | None) -> TagSelection | None:
    """Return the selection from the options ``--tags``, ``--tags-all`` and ``--tags-none``. Invalid tags are
    wrong usage.
    """
    lists = [None if text is None else text.split(SEPARATOR) if text else [] for text in texts]
    try:
        return checked_selection(*lists, names=("--tags", "--tags-all", "--tags-none"))
    except InvalidSelection as error:
        wrong_usage(str(error))
