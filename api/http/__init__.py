"""Shared tools of the handlers: the request, its parameters and body, errors, bounds, and the ports of the
broker.

Read ``routes`` (a path with its parameters and bodies, and the ``Call`` of a handler), ``requests`` and
``services`` first. ``parameters``, ``bodies`` and ``pagination`` parse requests; ``errors`` is the table of
problems; ``admission`` and ``answers_in_flight`` bound memory; ``access`` checks host names and origins;
``batching`` lets small produces share a batch; ``redirects`` redirects clients to the leader.
"""
