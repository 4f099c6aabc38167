"""What is known of a collection's files: where they come from, how large they are, under which licence."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class File:
    """One file as its distributor publishes it.

    Args:
        key: how the collection's own code (and ``files=`` of a user) calls it.
        name: the file's name, with the folder it lies in at the distributor where names repeat.
        url: where it is published; ``None`` where it cannot be fetched without a person (a form, a licence to sign).
        size: in bytes, ``None`` where no copy was seen.
        sha256: of the bytes as distributed, ``None`` where no copy was seen: then only what the download itself says
            is checked.
        archive: key of the archive that holds it; ``name`` is then the member.
        how: what to do by hand where there is no ``url``.
        checked: what the reader was tested against.
        optional: a reader does without it.
        aliases: other names that the same file goes by elsewhere.
    """

    key: str
    name: str
    url: str | None = None
    size: int | None = None
    sha256: str | None = None
    archive: str | None = None
    how: str = ""
    checked: str = "not verified against a copy of the file"
    optional: bool = False
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """A collection as it is published.

    Args:
        key: the folder in the cache.
        title: its full name.
        homepage: where people read about it.
        licence: as found at the distributor, in a line.
        citation: what to cite.
        counts: what the papers state ("turns": 16451 …), for tables.
    """

    key: str
    title: str
    homepage: str
    licence: str
    citation: str
    files: tuple[File, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)

    def file(self, key: str) -> File:
        """The file of that key.

        Raises:
            KeyError: there is none.
        """
        for file in self.files:
            if file.key == key:
                return file
        raise KeyError(f"{self.title} has no file {key!r}: {', '.join(file.key for file in self.files)}")
