"""What all our transformers have in common: identity that follows their settings, a schematic without a network."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt


class Stage(pt.Transformer):
    """A transformer whose constructor stores each option under the option's own name.

    Two stages of one class with equal options are equal and hash alike: PyTerrier reuses results and names rows of
    tables by that. A subclass whose option is not enough to tell two stages apart overrides :meth:`_identity`.
    """

    #: shown in schematics; a subclass may set its own label
    label: str | None = None

    def _constructor(self) -> dict[str, inspect.Parameter]:
        """The options of the constructor; none for a class that has no constructor of its own."""
        own = type(self).__init__
        inherited = own is object.__init__ or own is pt.Transformer.__init__
        return {} if inherited else dict(list(inspect.signature(own).parameters.items())[1:])

    def _identity(self) -> tuple[Any, ...]:
        return tuple((name, getattr(self, name)) for name in self._constructor() if name not in _NOT_IDENTITY)

    def _contents(self) -> Any:
        """What the results depend on, wherever the files that hold it lie: that by which settings on disk are compared.

        A stage whose :meth:`_identity` holds a path says here what is found there.
        """
        return self._identity()

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return _frozen(self._identity()) == _frozen(other._identity())

    def __hash__(self) -> int:
        return hash((type(self).__qualname__, _frozen(self._identity())))

    def __repr__(self) -> str:
        """The options that differ from their defaults, as they would be typed."""
        shown = []
        for name, parameter in self._constructor().items():
            value = getattr(self, name)
            if parameter.default is inspect.Parameter.empty:
                shown.append(repr(value))
            elif name not in _NOT_IDENTITY and _frozen(value) != _frozen(parameter.default):
                shown.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def schematic(self, *, input_columns: list[str] | None = None) -> dict[str, Any]:
        # help_url is given so that drawing a pipeline asks no server for an inventory of documentation
        return {"label": self.label or type(self).__name__, "help_url": None}


#: options that change how a stage runs, not what it returns
_NOT_IDENTITY = frozenset({"verbose", "batch_size", "threads", "num_workers", "device"})


def _frozen(value: Any) -> Any:
    """A hashable value that is equal exactly where ``value`` is."""
    if isinstance(value, dict):
        return ("dict", frozenset((_frozen(key), _frozen(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return (type(value).__name__, tuple(_frozen(item) for item in value))
    if isinstance(value, set | frozenset):
        return ("set", frozenset(_frozen(item) for item in value))
    if isinstance(value, np.ndarray) and value.dtype == object:
        return ("array", "O", value.shape, _frozen(value.ravel().tolist()))  # its bytes are addresses
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, pd.DataFrame):
        columns = tuple(map(str, value.columns))
        return ("frame", columns, tuple(_frozen(value[column].tolist()) for column in value.columns))
    try:
        hash(value)
    except TypeError:
        return ("object", id(value))
    return (type(value).__name__, value)
