"""Words of a text in any script, and how one word is compared with another."""

from __future__ import annotations

import regex

from pt_convsearch.lexical.analysis import LUCENE_STOPWORDS

# runs of letters and digits, with the marks that stand inside them; scripts without spaces by character
_WORD = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}]\p{M}*|(?:(?![\p{Han}\p{Hiragana}\p{Katakana}])[\p{L}\p{M}\p{N}_])+"
    r"(?:['’.](?:(?![\p{Han}\p{Hiragana}\p{Katakana}])[\p{L}\p{M}\p{N}_])+)*"
)
_POSSESSIVE = regex.compile(r"['’]s$")

#: English words that say nothing by themselves: Lucene's, and the question words and pronouns of conversations
STOPWORDS = LUCENE_STOPWORDS | frozenset(
    (  # noqa: SIM905 - a list of literals would fill the page
        "about also am any been being can could did do does doing from had has have having he her here him his how "
        "i its just me more most my other our out over she should so some than them those too up us very we were what "
        "when where which who whom whose why would you your i'm i've you're we're they're don't didn't doesn't isn't "
        "aren't wasn't weren't can't couldn't won't wouldn't let"
    ).split()
)


def words(text: str) -> list[str]:
    """The words of a text as they stand in it; Chinese and Japanese by character.

    >>> words("Who wrote 'Dune', Mr. Herbert's novel? 沙丘")
    ['Who', 'wrote', 'Dune', 'Mr', "Herbert's", 'novel', '沙', '丘']
    """
    return [match.group() for match in _WORD.finditer(text)]


def folded(word: str) -> str:
    """A word as it is compared: case folded, without a possessive.

    >>> folded("Herbert's")
    'herbert'
    """
    return _POSSESSIVE.sub("", word.casefold())
