"""Builds self-contained HTML pages."""

from __future__ import annotations

import html
import re

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "code{background:#f2f2f2;padding:.1em .3em;border-radius:3px}h2{margin-top:2.5rem;font-size:1.15rem}"
    "table{border-collapse:collapse;width:100%}td,th{border-top:1px solid #ddd;padding:.3rem .5rem;"
    "text-align:left;vertical-align:top}small{color:#777}"
)


def page(title: str, body: str) -> bytes:
    """Build a page; ``title`` is text, ``body`` is HTML."""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>{body}</body></html>"
    ).encode()


def text(source: str) -> str:
    """Escape text for HTML; text between backticks becomes a code element."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(source, quote=False))
