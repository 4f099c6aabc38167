"""Topics from dialogues: utterances with speakers, as forums and chat channels have them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd

from pt_convsearch.topics.chats import conversations
from pt_convsearch.topics.checks import has_value
from pt_convsearch.topics.files import naming
from pt_convsearch.topics.messages import ASSISTANT, USER, Message, clean_text
from pt_convsearch.topics.rows import Rows, RunningNumber

User = str | Collection[str] | Callable[[str], bool] | None
_LISTS = ("utterances", "dialogue", "dialog", "turns", "turn", "messages")
_IDS = ("dialogue_id", "dialog_id", "id", "conversation_id")


def from_dialogues(
    dialogues: Iterable[Any] | pd.DataFrame | str | os.PathLike[str], user: User = None, *, turns: str = "all"
) -> pd.DataFrame:
    """Topics from dialogues: one row per utterance of the user; everybody else speaks as the assistant.

    Args:
        dialogues: each a dict with ``utterances`` (a list) and ``dialogue_id`` (else ``id``, else a running number
            from 1), or just the list; or the path of a file of them. An utterance is a dict with ``speaker`` and
            ``text``, a pair (speaker, text), or a str (then speakers alternate).
        user: who asks: a speaker's name, a collection of names, or a function of the name; by default whoever opens
            the dialogue.
        turns: "all", or "last" for each dialogue's last utterance of the user.

    Returns:
        a topics frame: qid, query, qhistory, answer, conversation_id, turn_number. Utterances of one role in a row
        stay separate messages; those without text are left out.

    Raises:
        ValueError: an utterance without speaker or text, an id used twice, or a ``user`` who speaks nowhere.

    Example:
        >>> import pt_convsearch as cs
        >>> dialogue = {"dialogue_id": "d", "utterances": [
        ...     {"speaker": "ann", "text": "wifi is down"}, {"speaker": "bob", "text": "which card?"},
        ...     {"speaker": "ann", "text": "an old one"}]}
        >>> cs.topics.from_dialogues([dialogue])["query"].tolist()
        ['wifi is down', 'an old one']
        >>> cs.topics.from_dialogues([dialogue], user="bob").answer.tolist()
        ['an old one']
    """
    rows, heard = Rows(turns), Heard(user)
    source = conversations(dialogues)
    with naming(source):
        for dialogue in read_dialogues(source):
            is_user = heard.asker(dialogue)
            messages: list[Message] = [
                {"role": USER if is_user(said.speaker) else ASSISTANT, "content": said.text}
                for said in dialogue.utterances
            ]
            rows.add(dialogue.name, messages)
        heard.check()
        return rows.frame()


class Utterance(NamedTuple):
    speaker: str
    text: str


class Dialogue(NamedTuple):
    name: Any
    utterances: list[Utterance]


def read_dialogues(dialogues: Any) -> Iterator[Dialogue]:
    """Dialogues in any of their shapes; utterances without text are left out."""
    for number, dialogue in enumerate(conversations(dialogues), 1):
        name: Any = RunningNumber(number)
        utterances = dialogue
        if isinstance(dialogue, Mapping):
            found = [field for field in _LISTS if field in dialogue]
            if not found:
                raise ValueError(
                    f"dialogue {number} has none of {', '.join(_LISTS)}: its keys are {', '.join(map(str, dialogue))}"
                )
            name = next((dialogue[field] for field in _IDS if has_value(dialogue.get(field))), name)
            utterances = next((dialogue[field] for field in found if has_value(dialogue[field])), ())
        if isinstance(utterances, str) or not hasattr(utterances, "__iter__"):
            raise ValueError(f"dialogue {name!r} is {type(utterances).__name__}: give a list of utterances")
        said = [_utterance(value, name, at) for at, value in enumerate(utterances)]
        yield Dialogue(name, [utterance for utterance in said if utterance.text.strip()])


def _utterance(value: Any, name: Any, at: int) -> Utterance:
    speaker: Any
    text: Any
    if isinstance(value, str):
        speaker, text = ("first", "second")[at % 2], value
    elif isinstance(value, Mapping):
        speaker = next((value[key] for key in ("speaker", "role", "from", "user") if has_value(value.get(key))), None)
        text = next(
            (value[key] for key in ("text", "utterance", "content", "value") if has_value(value.get(key))), None
        )
    elif isinstance(value, list | tuple) and len(value) == 2:
        speaker, text = value
    else:
        speaker = text = None
    if speaker is None or not isinstance(text, str):
        raise ValueError(f"utterance {at + 1} of dialogue {name!r} lacks a speaker or a text: {str(value)[:60]!r}")
    return Utterance(str(speaker), clean_text(text))


class Heard:
    """Who asks in each dialogue, and whether the user that was named was heard in any."""

    def __init__(self, user: User) -> None:
        self.user = user
        self._speakers: set[str] = set()
        self._asked = False

    def asker(self, dialogue: Dialogue) -> Callable[[str], bool]:
        """Whether a speaker of this dialogue is the user."""
        speakers = dict.fromkeys(said.speaker for said in dialogue.utterances)
        if callable(self.user):
            is_user = self.user
        else:
            named = next(iter(speakers), "") if self.user is None else self.user
            is_user = ({named} if isinstance(named, str) else set(named)).__contains__
        self._asked = self._asked or any(map(is_user, speakers))
        if len(self._speakers) < 50:
            self._speakers.update(speakers)
        return is_user

    def check(self) -> None:
        """Raises ValueError where there are speakers, and none of them is the user."""
        if self._speakers and not self._asked:
            raise ValueError(
                f"user={self.user!r} speaks in none of the dialogues; speakers are "
                f"{', '.join(sorted(self._speakers)[:5])} …"
            )
