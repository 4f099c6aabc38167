"""Responses of test dialogues in the training data: found by their text, and taken out."""

from __future__ import annotations

import unicodedata

import pandas as pd

from pt_convsearch.topics import Task, first_three


def find_leaks(train: Task, *held_out: Task) -> pd.DataFrame:
    """Training responses that say the same as a response that is held out for validation or test.

    Texts are the same when they differ in nothing but case, blanks and Unicode composition (:func:`normalised`). Much
    of what is found are phrases that everybody says ("yes", "you're welcome"); a model that has seen them as right
    answers knows them all the same.

    Args:
        train: the training task.
        held_out: tasks whose responses must not be trained on.

    Returns:
        a frame of ``text`` (as in training), ``docno`` (in training) and ``held_out_docno`` (the first of that text),
        a row a training document, in the collection's order.

    Example:
        >>> import pt_convsearch as cs
        >>> def task(name, *texts):
        ...     return cs.topics.responses([{"dialogue_id": f"{name}{n}", "utterances": [("a", "?"), ("b", text)]}
        ...                                 for n, text in enumerate(texts)])
        >>> find_leaks(task("train", "Yes", "try grub"), task("test", "yes ")).docno.tolist()
        ['train0_1']
    """
    known: dict[str, str] = {}
    for task in held_out:
        for document in task.corpus:
            known.setdefault(normalised(document["text"]), document["docno"])
    found = [
        (document["text"], document["docno"], known[key])
        for document in train.corpus
        if (key := normalised(document["text"])) in known
    ]
    return pd.DataFrame(found, columns=["text", "docno", "held_out_docno"], dtype=str)


def without_leaks(train: Task, *held_out: Task) -> Task:
    """The training task without the responses of :func:`find_leaks`, their judgments, and the topics that lose their
    answer by it.

    Histories are left as they are: a held-out response that was said earlier in a training context stays there.
    """
    leaked = set(find_leaks(train, *held_out)["docno"])
    if not leaked:
        return train
    texts = {normalised(document["text"]) for document in train.corpus if document["docno"] in leaked}
    qrels = train.qrels[~train.qrels["docno"].isin(leaked)].reset_index(drop=True)
    answered = train.topics["answer"].map(lambda answer: normalised(answer) not in texts)
    lost = set(train.qrels["qid"]) - set(qrels["qid"])
    topics = train.topics[answered & ~train.topics["qid"].isin(lost)].reset_index(drop=True)
    corpus = [document for document in train.corpus if document["docno"] not in leaked]
    return Task(topics, corpus, qrels[qrels["qid"].isin(set(topics["qid"]))].reset_index(drop=True))


def check_leaks(train: Task, *held_out: Task) -> None:
    """Raise if a held-out response is in the training data.

    Raises:
        ValueError: with the count and the first three texts.
    """
    found = find_leaks(train, *held_out)
    if len(found):
        texts = first_three(text[:60] for text in dict.fromkeys(found["text"]))
        raise ValueError(
            f"{len(found)} training responses are also responses of a held-out split ({texts}): "
            "take them out with without_leaks, or by leaks='drop'"
        )


def normalised(text: str) -> str:
    """The text without differences of case, blanks and Unicode composition.

    >>> normalised("Try  GRUB\\n") == normalised("try grub")
    True
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
