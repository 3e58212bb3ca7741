"""Delayed messages, decided without IO."""
