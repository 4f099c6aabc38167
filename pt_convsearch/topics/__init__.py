"""The topics frame: its columns, its checks, and the ways of building it."""

from pt_convsearch.topics.checks import as_ids, check_queries

__all__ = ["as_ids", "check_queries"]
