"""Shared tools of the HTTP handlers.

Read ``routes`` (a path with its parameters and bodies, and the ``Call`` of a handler) and ``requests`` first.
``parameters``, ``bodies`` and ``pagination`` parse requests; ``errors`` is the table of problems;
``admission`` and ``answers_in_flight`` limit memory; ``access`` checks host names and origins; ``batching``
lets small produces share a batch; ``redirects`` redirects clients to the leader.
"""
