"""What every handler uses: the request, its parameters and body, errors, bounds, and the ports of the broker.

Read ``routes`` (a path, what it takes and gives, and the ``Call`` that a handler gets), ``requests`` and
``services`` first. ``parameters``, ``bodies`` and ``pagination`` read what was sent; ``errors`` is the one
table of problems; ``admission`` and ``answers_in_flight`` bound memory; ``access`` says which names and web
pages may ask; ``batching`` lets small produces share a batch; ``redirects`` sends a client to the leader.
"""
