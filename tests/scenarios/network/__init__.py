"""Transports on loopback."""
