"""The embedded testbed: a seeded generator of conversations, passages, answers, rewrites and judgments."""

from pt_convsearch.datasets.testbed.dataset import Testbed, testbed

__all__ = ["Testbed", "testbed"]
