"""One file per sub-command; each has ``add_parser(subparsers)`` and imports what is heavy only when it runs."""
