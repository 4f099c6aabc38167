"""Who says what, inside the text of a conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..forming import Parts, X
from ..topics.messages import USER
from ..topics.validation import MISSING


@dataclass(frozen=True)
class Speakers:
    """Parts of the conversation with a mark of the speaker before each message, for ``cs.form``.

    With ``sep=("[U]", "[T]")`` the text is aware of utterances and turns as well; marks and separators are read as
    words unless the tokenizer knows them (``cs.with_separators``).

    Args:
        parts: which parts.
        user: the mark of the user's messages.
        assistant: that of the others.

    Example:
        >>> import pt_convsearch as cs
        >>> topics = cs.topics.from_messages([[
        ...     {"role": "user", "content": "Who wrote Dune?"}, {"role": "assistant", "content": "Herbert."},
        ...     {"role": "user", "content": "When?"}]])
        >>> cs.form(cs.Speakers(cs.X), sep=("[U]", "[T]"))(topics)["query"][1]
        'user: Who wrote Dune? [T] assistant: Herbert. [T] user: When?'
    """

    parts: Parts = X
    user: str = "user:"
    assistant: str = "assistant:"

    def __call__(self, row: dict[str, Any]) -> list[dict[str, str]]:
        if "qhistory" not in row:
            raise ValueError(f"{self!r} reads column 'qhistory'. {MISSING}.")
        places, current = self.parts.choose(row["qhistory"])
        said = [row["qhistory"][place] for place in places]
        if current:
            said.append({"role": USER, "content": row["query"]})
        if self.parts.rewrite:
            if not isinstance(row.get("qrewrite"), str):
                raise ValueError(f"{self!r} reads column 'qrewrite', and qid {row.get('qid')!r} has none")
            said.append({"role": USER, "content": row["qrewrite"]})
        return [
            {
                "role": message["role"],
                "content": f"{self.user if message['role'] == USER else self.assistant} {message['content']}",
            }
            for message in said
            if message["content"].strip()
        ]

    def __repr__(self) -> str:
        return f"Speakers({self.parts!r})"
