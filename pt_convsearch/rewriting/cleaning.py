"""What language models answer when asked for a rewrite, and the rewrite in it."""

from __future__ import annotations

import json
from typing import Any

import regex

_THOUGHT = regex.compile(r"<(think|thinking|reasoning)>.*?(</\1>|\Z)", regex.DOTALL | regex.IGNORECASE)
_FENCE = regex.compile(r"```[\w-]*\s*\n?(.*?)(?:```|\Z)", regex.DOTALL)
_LABEL = regex.compile(
    r"^(?:(?:here(?:'s| is)|sure|certainly|of course|okay|ok)\b[^:：]{0,80}|"
    r"(?:the\s+)?(?:(?:re-?written|re-?formulated|re-?phrased|stand-?alone|self-contained|resolved|final|search|last)\s+){0,3}"
    r"(?:rewrite|rewriting|question|query|utterance|output|answer|response|q)|改写(?:后的问题)?|重写|问题|查询)\s*[:：]\s*",
    regex.IGNORECASE,
)
_LEAD = regex.compile(r"^(?:here(?:'s| is)|sure|certainly|of course|okay|ok)\b.*[:：!.]$", regex.IGNORECASE)
_BULLET = regex.compile(r"^(?:[-*•>]|\(?\d{1,2}[.)])\s+")
_REFUSAL = regex.compile(
    r"^(?:i(?:'m| am) (?:sorry|unable|not able)|sorry\b|i (?:cannot|can't|can not|won't|do not|don't) |as an ai\b|"
    r"(?:there is )?no (?:rewrite|rewriting)\b|n/?a$|none$|null$|unknown$)",
    regex.IGNORECASE,
)
_QUOTES = {
    '"': '"',
    "'": "'",
    "“": "”",
    "”": "”",
    "„": "“",
    "‘": "’",
    "«": "»",
    "「": "」",
    "『": "』",
    "`": "`",
    "*": "*",
    "_": "_",
}
_FIELDS = ("rewrite", "rewritten_question", "rewritten_query", "rewritten", "question", "query", "standalone_question",
           "standalone", "output", "text", "content", "answer", "result")  # fmt: skip
_SAYS = regex.compile(r"[\p{L}\p{N}]")
_MOST_WORDS = 100


def cleaned(answer: Any) -> str | None:
    """The rewrite in a model's answer, in one line; None where there is none to search with.

    Thoughts, code fences, JSON, labels ("Rewrite:"), leads ("Sure! Here is …:"), bullets, quotation marks and
    further lines are taken off. Refusals, texts without a letter or digit, and texts of more than 100 words (an answer
    or an explanation, no question) are no rewrites.

    >>> cleaned('Sure! Here is the rewritten question:\\n\\n"When was Dune published?"\\n\\nI replaced the pronoun.')
    'When was Dune published?'
    >>> cleaned('{"rewrite": "When was Dune published?"}')
    'When was Dune published?'
    >>> cleaned("I'm sorry, but I cannot help with that.")
    """
    if not isinstance(answer, str):
        return None
    whole = answer.encode("utf-8", "ignore").decode("utf-8")  # JSON may hold halves of characters
    text = _THOUGHT.sub(" ", whole).strip()
    fenced = _FENCE.search(text)
    if fenced and fenced.group(1).strip():
        text = fenced.group(1).strip()
    found = _json(text)
    text = text if found is None else found
    lines = [line for line in map(str.strip, text.splitlines()) if _SAYS.search(line)]
    if not lines:
        return None
    labelled = [line for line in lines if _LABEL.match(line) and _bare(line)]
    if labelled:
        line = labelled[0]
    elif len(lines) > 1 and (_LEAD.match(lines[0]) or _LABEL.match(lines[0]) or lines[0].endswith((":", "："))):
        line = lines[1]
    else:
        line = lines[0]
    line = _bare(line)
    if not _SAYS.search(line) or _REFUSAL.match(line) or len(line.split()) > _MOST_WORDS:
        return None
    return line


def _bare(line: str) -> str:
    """A line without bullets, labels, emphasis and quotation marks around it."""
    before = None
    line = " ".join(line.split())
    while line != before:
        before = line
        line = _BULLET.sub("", line)
        line = _LABEL.sub("", line).strip()
        while len(line) > 1 and _QUOTES.get(line[0]) == line[-1] and _QUOTES[line[0]] not in line[1:-1]:
            line = line[1:-1].strip()
        for mark in ("**", "__"):
            if line.startswith(mark) and mark in line[2:]:
                line = line[2:].replace(mark, "", 1).strip()
    return line


def _json(text: str) -> str | None:
    """The rewrite in an answer that is JSON; None where it is not."""
    if text[:1] not in '{["':
        return None
    try:
        value = json.loads(text)
        return _text_in(value)
    except RecursionError:
        return ""
    except ValueError:
        try:
            value, _ = json.JSONDecoder().raw_decode(text)
        except ValueError:  # cut short, or no JSON at all
            return "" if regex.match(r'[{\[]\s*["{\[]', text) else None
        if isinstance(value, str):  # a quoted word at the front of a sentence
            return None
    return _text_in(value)


def _text_in(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _text_in(value[0]) if value else ""
    if isinstance(value, dict):
        named = {str(name).casefold().replace(" ", "_").replace("-", "_"): item for name, item in value.items()}
        for field in _FIELDS:
            if named.get(field):
                return _text_in(named[field])
        texts = [item for item in value.values() if isinstance(item, str)]
        return texts[0] if len(texts) == 1 else ""
    return ""
