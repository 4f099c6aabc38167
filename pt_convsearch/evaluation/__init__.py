"""Question types, experiments broken down by group, shortcut dependence, cost, rendering and figures."""

from pt_convsearch.evaluation import figures, plots
from pt_convsearch.evaluation.cost import Cost, CostMeter, cost_table
from pt_convsearch.evaluation.dependence import ShortcutDependence, shortcut_dependence
from pt_convsearch.evaluation.experiment import Experiment
from pt_convsearch.evaluation.oracle import ConversationOracle
from pt_convsearch.evaluation.pairwise import pairwise_tests, superscripts
from pt_convsearch.evaluation.projection import neighbourhood, project
from pt_convsearch.evaluation.qualitative import top_passages
from pt_convsearch.evaluation.question_types import QuestionTypes
from pt_convsearch.evaluation.rendering import render
from pt_convsearch.evaluation.table import ResultTable

__all__ = [
    "ConversationOracle",
    "Cost",
    "CostMeter",
    "Experiment",
    "QuestionTypes",
    "ResultTable",
    "ShortcutDependence",
    "cost_table",
    "figures",
    "neighbourhood",
    "pairwise_tests",
    "plots",
    "project",
    "render",
    "shortcut_dependence",
    "superscripts",
    "top_passages",
]
