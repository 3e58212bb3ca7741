"""The HTTP contract as values, shared by server and client.

Decides: the operations (``operation``; each is a constant in the module of its resource), the bodies, media
types, header names, limits, and the form of an error (``problems``). Leaves to others: the effect of a
request (``api``) and when to send one (``raftlog.client``).

Nothing here does IO. Fields, headers and codes may be added; none is ever renamed.
"""
