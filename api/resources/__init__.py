"""The handlers, one module for each resource: its routes and what they do.

``produce``, ``fetch``, ``events``, ``offsets``, ``topics``, ``partitions``, ``cluster``, ``health``,
``metrics``, and the documents: ``documentation`` (OpenAPI and a page), ``problem_pages``. ``json_records``
and ``json_answers`` are records on their way in and out; ``reading`` is a read on behalf of a request,
``receipts`` what became of produced records.
"""
