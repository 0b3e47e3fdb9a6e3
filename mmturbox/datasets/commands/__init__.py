"""Sub-commands of ``tools/create_data.py``: one module each.

A module has ``HELP`` (a line), ``add_arguments(parser)`` and ``run(args)``.
``run`` raises ``ValueError`` or ``OSError`` for what the user can put right.
"""
