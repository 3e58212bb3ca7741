"""Shared tools of the handlers: the request, its parameters and body, and errors.

Read ``routes`` (a path with its parameters and bodies, and the ``Call`` of a handler) and ``requests`` first.
``parameters``, ``bodies`` and ``pagination`` parse requests; ``errors`` is the table of problems. ``access``
checks host names and origins. ``batching`` lets small produces share a batch, and ``shared_reads`` lets event
streams share a read. ``redirects`` redirects clients to the leader. Leaves to others: the limits on memory
(``broker.listeners.admission``) and the ports of the broker (``broker.ports``).
"""
