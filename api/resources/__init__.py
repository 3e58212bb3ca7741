"""Handles the operations, with one module for each resource and its routes.

Resources: ``produce``, ``fetch``, ``events``, ``offsets``, ``topics``, ``partitions``, ``cluster``,
``health``, ``metrics``. Documents: ``documentation`` (OpenAPI and a page), ``problem_pages``.
``json_records`` and ``json_answers`` convert records from and to JSON, ``json_values`` the bytes in them.
``reading`` reads for a request, and ``receipts`` builds the response to a produce.
"""
