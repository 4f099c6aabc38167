"""Question types, experiments broken down by group, shortcut dependence, rendering and plots."""

from pt_convsearch.evaluation import plots
from pt_convsearch.evaluation.dependence import ShortcutDependence, shortcut_dependence
from pt_convsearch.evaluation.experiment import Experiment
from pt_convsearch.evaluation.pairwise import pairwise_tests, superscripts
from pt_convsearch.evaluation.question_types import QuestionTypes
from pt_convsearch.evaluation.rendering import render
from pt_convsearch.evaluation.table import ResultTable

__all__ = [
    "Experiment",
    "QuestionTypes",
    "ResultTable",
    "ShortcutDependence",
    "pairwise_tests",
    "plots",
    "render",
    "shortcut_dependence",
    "superscripts",
]
