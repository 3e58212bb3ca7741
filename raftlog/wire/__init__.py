"""The HTTP contract as values: what server and client must agree on, letter by letter.

Decides: the bodies (``bodies``), media types, header names, paths, limits, and how an error looks on the wire
(``problems``). Leaves to others: what a request does (``api``) and when to send one (``raftlog.client``).

Nothing here does IO. Fields, headers and codes may be added; none is ever renamed.
"""
