"""Unused rows of coordinators that expire within a run: rows of groups, transactional ids, sinks and keyed
requests.

Decides: how short retention is, and which rows may be deleted (C10, T12). Expiry is not a scenario of its
own: the scenarios of groups and transactions use such rows in runs with ``ExpiryOdds``.
"""
