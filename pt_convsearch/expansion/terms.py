"""What an expansion does to the terms of a document: the two effects that the paper tells apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

from .resp2ctxt import source_of

_COLUMNS = {"docno": "str", "terms": "int64", "added": "int64", "new": "int64", "reweighted": "int64"}


def expansion_terms(
    documents: pd.DataFrame | Iterable[dict[str, Any]],
    *,
    analyze: Callable[[str], list[str]] | None = None,
    text_field: str = "text",
) -> pd.DataFrame:
    """Which terms of each expansion are new, and which the document had before and now weigh more.

    Penha and Hauff see two effects of resp2ctxt: new words close the gap of vocabulary between context and response,
    repeated ones re-weigh the response's own. Terms are counted as the index sees them.

    Args:
        documents: what :class:`Resp2Ctxt` gave (a frame, or dicts): docno, ``expansion`` and the text, in ``text_0``
            where it was expanded in place.
        analyze: from a text to its terms, e.g. ``index.analyze``; by default that of ``cs.BM25Index``.
        text_field: the field of the text.

    Returns:
        one row per document, in order: docno; ``terms``, the number of terms of the text; ``added``, of the
        expansion, of which ``new`` occur in the text nowhere, and ``reweighted`` do; ``new_terms`` and
        ``reweighted_terms``, dicts of term to how often it was added, most frequent first.

    Raises:
        ValueError: a document without ``expansion`` or text, or with a ``text_0`` that is no earlier text of it.

    Example:
        >>> import pt_convsearch as cs
        >>> said = {"docno": "d", "text": "reboot the router", "expansion": "my router is slow, which router?"}
        >>> frame = cs.expansion_terms([said])
        >>> frame.loc[0, ["terms", "added", "new", "reweighted"]].tolist(), frame.reweighted_terms[0]
        ([2, 5, 3, 2], {'router': 2})
    """
    if analyze is None:
        from pt_convsearch.lexical import Analyzer

        analyze = Analyzer()
    records = documents.to_dict("records") if isinstance(documents, pd.DataFrame) else documents
    rows = []
    for document in records:
        if not isinstance(document.get("expansion"), str):
            raise ValueError(f"document {document.get('docno')!r} has no expansion: give what cs.Resp2Ctxt returned")
        first = document.get(f"{text_field}_0")
        own = Counter(analyze(source_of(document["docno"], document.get(text_field, first), first, text_field)))
        added = Counter(analyze(document["expansion"]))
        new = {term: count for term, count in added.most_common() if term not in own}
        again = {term: count for term, count in added.most_common() if term in own}
        rows.append(
            (str(document["docno"]), own.total(), added.total(), sum(new.values()), sum(again.values()), new, again)
        )
    frame = pd.DataFrame(rows, columns=[*_COLUMNS, "new_terms", "reweighted_terms"])
    return frame.astype(_COLUMNS)


def expansion_summary(terms: pd.DataFrame) -> pd.Series:
    """The two effects over a collection.

    Args:
        terms: what :func:`expansion_terms` returned.

    Returns:
        documents, expanded (those with at least one added term); mean terms of a text and mean terms added;
        share_new and share_reweighted of all added terms; distinct_new and distinct_reweighted per document.

    Example:
        >>> import pt_convsearch as cs
        >>> frame = cs.expansion_terms([{"docno": "d", "text": "reboot the router", "expansion": "which router?"}])
        >>> float(cs.expansion_summary(frame)["share_new"])
        0.5
    """
    added = int(terms["added"].sum())
    count = max(1, len(terms))
    return pd.Series(
        {
            "documents": float(len(terms)),
            "expanded": float((terms["added"] > 0).sum()),
            "terms": terms["terms"].sum() / count,
            "added": added / count,
            "share_new": terms["new"].sum() / added if added else 0.0,
            "share_reweighted": terms["reweighted"].sum() / added if added else 0.0,
            "distinct_new": sum(map(len, terms["new_terms"])) / count,
            "distinct_reweighted": sum(map(len, terms["reweighted_terms"])) / count,
        }
    )
