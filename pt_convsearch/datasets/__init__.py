"""Collections by name: ``pt.get_dataset("convsearch:NAME")`` or ``cs.dataset(NAME, **options)``."""

from pt_convsearch.datasets.base import Dataset, register

__all__ = ["Dataset", "register"]
