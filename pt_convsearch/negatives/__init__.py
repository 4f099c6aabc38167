"""From what a retriever brings to training pairs: miners are pipelines, filters denoise them, a set on disk keeps the
pool."""

from pt_convsearch.negatives.annotation import annotation_sheet, annotation_widget, false_negative_rates
from pt_convsearch.negatives.candidate_lists import candidate_lists
from pt_convsearch.negatives.cross_encoder_denoise import CrossEncoderDenoise
from pt_convsearch.negatives.drop_answer_containing import DropAnswerContaining
from pt_convsearch.negatives.drop_context_subsets import DropContextSubsets
from pt_convsearch.negatives.drop_near_duplicates import DropNearDuplicates
from pt_convsearch.negatives.drop_positives import DropPositives
from pt_convsearch.negatives.filter import NegativeFilter
from pt_convsearch.negatives.generated_negatives import GeneratedNegatives
from pt_convsearch.negatives.margin import Margin
from pt_convsearch.negatives.mix import Mix
from pt_convsearch.negatives.pairs import TrainingPairs
from pt_convsearch.negatives.random_negatives import RandomNegatives
from pt_convsearch.negatives.ranks import Ranks
from pt_convsearch.negatives.training_pairs import training_pairs

__all__ = [
    "CrossEncoderDenoise",
    "DropAnswerContaining",
    "DropContextSubsets",
    "DropNearDuplicates",
    "DropPositives",
    "GeneratedNegatives",
    "Margin",
    "Mix",
    "NegativeFilter",
    "RandomNegatives",
    "Ranks",
    "TrainingPairs",
    "annotation_sheet",
    "annotation_widget",
    "candidate_lists",
    "false_negative_rates",
    "training_pairs",
]
