"""Historical query expansion: words of the history that the collection's statistics call topical."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
import pyterrier as pt

from pt_convsearch.forming import QUESTIONS, Parts
from pt_convsearch.lexical import BM25Index, bm25
from pt_convsearch.rewriting.rewriting_stage import RewritingStage, Turn, Written
from pt_convsearch.rewriting.words import STOPWORDS, folded, words

logger = logging.getLogger(__name__)

#: word and tag pairs of a text, as nltk.pos_tag gives them: Penn Treebank's NN… and JJ…, or NOUN, PROPN, ADJ
Tagger = Callable[[str], Iterable[tuple[str, str]]]
_KEPT_TAGS = ("NN", "JJ", "NOUN", "PROPN", "ADJ")
_MOST_WORDS = 1_000_000


class HQE(RewritingStage):
    """Historical query expansion (Q -> Q): topic words, subtopic words where q_t is ambiguous, then q_t.

    A word's score is the BM25 score of its best document when it is searched for alone. Words that score at least
    ``topic`` are taken from all turns. Where q_t is ambiguous (its own best document scores at most ``ambiguous``, or
    there is none), words that score at least ``subtopic`` and less than ``topic`` are added from the last ``window``
    turns. Both turns count the current one, as in the published code, so q_t's own topic words weigh twice. Words stand
    in the order of the conversation, each once.

    Input columns: ``qid``, ``query``, ``qhistory``. Output columns: all of them; the expanded query in ``query``, the
    former one in ``query_0``, q_t in ``qutterance``. First turns stay as they are.

    Args:
        index: whose statistics: a :class:`~pt_convsearch.lexical.BM25Index`, any index or path that ``cs.bm25`` opens,
            or a BM25 retriever. Thresholds are those of MS MARCO and CAR passages (38 million): a small collection has
            lower scores, so tune them there.
        topic: the least score of a topic word (R_topic).
        subtopic: the least score of a subtopic word (R_sub).
        ambiguous: up to this score of its best document q_t is ambiguous (eta).
        window: how many turns subtopic words are taken from, the current one counted (M).
        pos: a tagger, text to (word, tag) pairs such as ``lambda text: nltk.pos_tag(nltk.word_tokenize(text))``, to
            take nouns and adjectives only, as the paper does. None: all words that are no English stop words; no tagger
            comes with this library.
        parts: where words are taken from: the user's messages; ``cs.X`` for answers too.
        k1, b: of BM25, where ``index`` is no retriever; those of the published code.

    Raises:
        pt.validate.InputValidationError: ``qhistory`` is missing.
        ValueError: thresholds in the wrong order, a window below 0.

    Example:
        ``cs.HQE(index) >> index.bm25(k1=0.82, b=0.68)``

    Source: Lin et al., "Multi-stage conversational passage retrieval: an approach to fusing term importance estimation
        and neural query rewriting" (TOIS 2021), Algorithm 1.
    """

    def __init__(
        self,
        index: Any,
        *,
        topic: float = 4.5,
        subtopic: float = 3.5,
        ambiguous: float = 10.0,
        window: int = 5,
        pos: Tagger | None = None,
        parts: Parts = QUESTIONS,
        k1: float = 0.82,
        b: float = 0.68,
    ) -> None:
        self.index = index
        self.topic, self.subtopic, self.ambiguous, self.window = topic, subtopic, ambiguous, window
        self.pos = pos
        self.parts = parts
        self.k1, self.b = k1, b
        self.counts = {"rewritten": 0, "empty": 0, "ambiguous": 0}
        # scores of words, by the searcher that gave them
        self._scores: tuple[pt.Transformer, dict[str, float]] | None = None
        self._check_options()

    def _check_options(self) -> None:
        if not self.subtopic <= self.topic:
            raise ValueError(
                f"subtopic={self.subtopic}, topic={self.topic}: a topic word scores higher than a subtopic word"
            )
        if self.window < 0:
            raise ValueError(f"window={self.window}: a number of turns, 0 or more")

    def _rewrite(self, turns: list[Turn], frame: pd.DataFrame) -> list[Written]:
        self._check_options()  # GridScan sets attributes
        by_turn = [self._words(turn) for turn in turns]
        self.best_scores(word for said in by_turn for some in said for word in some)
        questions = [turn.question for turn in turns]
        scores = self._searched(questions)
        queries: list[Written] = []
        for turn, said, best in zip(turns, by_turn, scores, strict=True):
            chosen = self._chosen(said, lambda score: score >= self.topic)
            if best <= self.ambiguous:
                self.counts["ambiguous"] += 1
                recent = said[max(0, len(said) - self.window) :]
                chosen += self._chosen(recent, lambda score: self.subtopic <= score < self.topic)
            queries.append([(" ".join([*chosen, turn.question]), 1.0)])
        return queries

    def _words(self, turn: Turn) -> list[list[str]]:
        """The words that may be taken, turn by turn, the current one last."""
        places, current = self.parts.choose(turn.history)
        chosen = set(places)
        by_turn: list[list[str]] = [[]]
        for at, message in enumerate(turn.history):
            if message["role"] == "user" and at > 0:
                by_turn.append([])
            if at in chosen:
                by_turn[-1] += self._candidates(message["content"])
        return [*by_turn, self._candidates(turn.question) if current else []]

    def _candidates(self, text: str) -> list[str]:
        if self.pos is not None:
            return [word for word, tag in self.pos(text) if tag.startswith(_KEPT_TAGS)]
        return [word for word in words(text) if folded(word) not in STOPWORDS]

    def _chosen(self, said: list[list[str]], fits: Callable[[float], bool]) -> list[str]:
        known = self.best_scores(())
        chosen: dict[str, str] = {}
        for some in said:
            for word in some:
                if fits(known[word]):
                    chosen.setdefault(folded(word), word)
        return list(chosen.values())

    def best_scores(self, asked: Iterable[str]) -> dict[str, float]:
        """The score of the best document of each word, 0 where no document has it, with all that were asked before."""
        searcher = self._searcher()
        if self._scores is None or self._scores[0] != searcher:
            self._scores = searcher, {}
        known = self._scores[1]
        if len(known) > _MOST_WORDS:
            known.clear()
        new = [word for word in dict.fromkeys(asked) if word not in known]
        if new:
            known.update(zip(new, self._searched(new), strict=True))
        return known

    def _searched(self, texts: list[str]) -> list[float]:
        """The best score of each text; one search for all of them."""
        asked = pd.DataFrame({"qid": [str(at) for at in range(len(texts))], "query": texts})
        found = pd.DataFrame(self._searcher().transform(asked))
        best = found.groupby("qid")["score"].max().to_dict()
        return [float(best.get(qid, 0.0)) for qid in asked["qid"]]

    def _searcher(self) -> pt.Transformer:
        if isinstance(self.index, pt.Transformer) and not isinstance(self.index, BM25Index | pt.Indexer):
            return self.index % 1
        return bm25(self.index, num_results=1, k1=self.k1, b=self.b)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_scores": None}

    def subtransformers(self) -> dict[str, Any]:
        return {}
