"""Handles the operations, with one module for each resource and its routes.

``produce``, ``fetch``, ``events``, ``offsets``, ``topics``, ``partitions``, ``cluster``, ``health``,
``metrics``, and the documents: ``documentation`` (OpenAPI and a page), ``problem_pages``. ``json_records``
and ``json_answers`` convert records from and to JSON, ``json_values`` their bytes; ``reading`` reads on
behalf of a request, ``receipts`` builds the response to a produce.
"""
