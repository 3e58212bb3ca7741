"""Unused rows that expire within a run: of groups, or of transactional ids, sinks and keyed requests.

Decides: how short retention is, and what may be forgotten (C10, T12). It is no scenario of its own: groups
and transactions have users of such rows, in runs whose odds have ``ExpiryOdds``.
"""
