"""``python -m api.cli``: the same as the ``raftlog`` script."""

from api.cli import main

main()
