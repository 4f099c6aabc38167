from . import (
    datasets as datasets,
    dense as dense,
    evaluation as evaluation,
    expansion as expansion,
    forming as forming,
    lexical as lexical,
    measures as measures,
    negatives as negatives,
    reranking as reranking,
    rewriting as rewriting,
    scale as scale,
    session as session,
    topics as topics,
    training as training,
)
from .datasets import dataset as dataset
from .dense import CQE as CQE, BiEncoder as BiEncoder, DenseIndex as DenseIndex, SparseEncoder as SparseEncoder
from .evaluation import (
    CostMeter as CostMeter,
    Experiment as Experiment,
    QuestionTypes as QuestionTypes,
    cost_table as cost_table,
    figures as figures,
    pairwise_tests as pairwise_tests,
    plots as plots,
    render as render,
    shortcut_dependence as shortcut_dependence,
    superscripts as superscripts,
    top_passages as top_passages,
)
from .expansion import (
    Resp2Ctxt as Resp2Ctxt,
    expansion_summary as expansion_summary,
    expansion_terms as expansion_terms,
)
from .forming import (
    ANSWERS as ANSWERS,
    CURRENT as CURRENT,
    FIRST_QUESTION as FIRST_QUESTION,
    LAST_ANSWER as LAST_ANSWER,
    LAST_QUESTION as LAST_QUESTION,
    LAST_UTTERANCE as LAST_UTTERANCE,
    QUESTIONS as QUESTIONS,
    REWRITE as REWRITE,
    Form as Form,
    Parts as Parts,
    X as X,
    form as form,
    last as last,
)
from .lexical import BM25Index as BM25Index, ImpactIndex as ImpactIndex, bm25 as bm25
from .negatives import (
    CrossEncoderDenoise as CrossEncoderDenoise,
    DropAnswerContaining as DropAnswerContaining,
    DropContextSubsets as DropContextSubsets,
    DropNearDuplicates as DropNearDuplicates,
    DropPositives as DropPositives,
    GeneratedNegatives as GeneratedNegatives,
    Margin as Margin,
    Mix as Mix,
    RandomNegatives as RandomNegatives,
    Ranks as Ranks,
    TrainingPairs as TrainingPairs,
    annotation_sheet as annotation_sheet,
    annotation_widget as annotation_widget,
    candidate_lists as candidate_lists,
    false_negative_rates as false_negative_rates,
    training_pairs as training_pairs,
)
from .reranking import (
    PARADE as PARADE,
    CrossEncoder as CrossEncoder,
    DropSeen as DropSeen,
    DuoT5 as DuoT5,
    MonoT5 as MonoT5,
    Speakers as Speakers,
    rrf as rrf,
)
from .rewriting import (
    HQE as HQE,
    LLMRewriter as LLMRewriter,
    NthRewrite as NthRewrite,
    QuReTeC as QuReTeC,
    Rewriter as Rewriter,
    RewriteTerms as RewriteTerms,
)
from .session import Session as Session
from .training import (
    cross_validate as cross_validate,
    train as train,
    train_conqrr as train_conqrr,
    train_convdr as train_convdr,
    train_cross_encoder as train_cross_encoder,
    train_disco as train_disco,
    train_parade as train_parade,
    train_quretec as train_quretec,
    train_resp2ctxt as train_resp2ctxt,
    train_rewriter as train_rewriter,
    with_separators as with_separators,
)

__version__: str
