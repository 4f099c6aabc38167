"""From what a retriever brings to training pairs: miners are pipelines, filters denoise them, a set on disk keeps the
pool."""

from pt_convsearch.negatives.cross_encoder_denoise import CrossEncoderDenoise
from pt_convsearch.negatives.drop_answer_containing import DropAnswerContaining
from pt_convsearch.negatives.drop_context_subsets import DropContextSubsets
from pt_convsearch.negatives.drop_near_duplicates import DropNearDuplicates
from pt_convsearch.negatives.drop_positives import DropPositives
from pt_convsearch.negatives.filter import NegativeFilter
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
    "Margin",
    "Mix",
    "NegativeFilter",
    "RandomNegatives",
    "Ranks",
    "TrainingPairs",
    "training_pairs",
]
