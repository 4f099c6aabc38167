"""``python -m pt_convsearch``."""

from pt_convsearch.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
