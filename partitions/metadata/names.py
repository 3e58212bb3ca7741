"""Rules for topic names, checked before a name becomes metadata or a path.

Names that differ only in dots and underscores are different topics, although the metrics of some other
systems give such topics one name.
"""

from __future__ import annotations

import re
from typing import Final

from raftlog.errors import InvalidRequest
from raftlog.wire.limits import NAME_CHARACTERS_MAX

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_ID: Final = re.compile(r"[0-9a-f]{32}")


def check_name(name: str, *, internal: bool = False) -> None:
    """Raise ``InvalidRequest`` if a topic may not have this name; the error states the broken rule."""
    shown = repr(name if len(name) <= 80 else name[:77] + "...")
    if not name:
        broken = f"is empty; give it 1 to {NAME_CHARACTERS_MAX} characters"
    elif len(name) > NAME_CHARACTERS_MAX:
        broken = f"has {len(name)} characters; give it 1 to {NAME_CHARACTERS_MAX}"
    elif name in (".", ".."):
        broken = "names a directory; choose another"
    elif _NAME.fullmatch(name) is None:
        broken = "may contain A to Z, a to z, 0 to 9, dot, underscore and hyphen only"
    elif name.startswith("__") and not internal:
        broken = "starts with two underscores, which internal topics use; choose another"
    else:
        return
    raise InvalidRequest(f"the topic name {shown} {broken}", field="name")


def is_id(text: str) -> bool:
    """Whether a text has the form of a topic id or a creation id: 32 hexadecimal digits."""
    return _ID.fullmatch(text) is not None
