from .bi_encoder import train as train
from .convdr import train_convdr as train_convdr
from .cross_encoder import train_cross_encoder as train_cross_encoder
from .disco import train_disco as train_disco
from .folds import CrossValidation as CrossValidation, cross_validate as cross_validate
from .losses import (
    CachedMaskedMultipleNegativesRankingLoss as CachedMaskedMultipleNegativesRankingLoss,
    MaskedMultipleNegativesRankingLoss as MaskedMultipleNegativesRankingLoss,
)
from .parade import train_parade as train_parade
from .resp2ctxt import train_resp2ctxt as train_resp2ctxt
from .rewriter import train_rewriter as train_rewriter
from .rewriter_conqrr import train_conqrr as train_conqrr
from .rewriter_quretec import train_quretec as train_quretec
from .separators import with_separators as with_separators
