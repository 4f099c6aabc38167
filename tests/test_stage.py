"""Identity of stages: by settings, never by addresses in memory."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd

from pt_convsearch._stage import Stage


class Keeps(Stage):
    def __init__(self, names: np.ndarray) -> None:
        self.names = names

    def transform(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame


def test_arrays_of_texts_are_compared_by_content() -> None:
    stage = Keeps(np.array(["a", "some text"], dtype=object))
    again = pickle.loads(pickle.dumps(stage))
    assert again == stage
    assert hash(again) == hash(stage)
    assert stage != Keeps(np.array(["a", "other"], dtype=object))


class Plain(Stage):
    def transform(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame


def test_a_stage_without_options() -> None:
    assert Plain() == Plain()
    assert hash(Plain()) == hash(Plain())
    assert Plain() != Keeps(np.array(["a"], dtype=object))
    assert repr(Plain()) == "Plain()"
