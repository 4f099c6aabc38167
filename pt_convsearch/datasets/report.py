"""What a check of a data set found: kinds of findings with counts and examples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ERROR, WARNING, NOTE = "error", "warning", "note"


@dataclass(frozen=True)
class Finding:
    """One thing that was found: how bad, what, how often, and some examples."""

    level: str
    text: str
    count: int = 1
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = (
            f": {', '.join(self.examples)}{' …' if self.count > len(self.examples) else ''}" if self.examples else ""
        )
        return f"{self.level:<8}{self.count:>9,}  {self.text}{shown}"


@dataclass
class Report:
    """What :func:`check` found; true where there is no error.

    Attributes:
        folder: the folder.
        findings: all that was found, errors first.
        counts: of files, questions, judgments, passages.
    """

    folder: Path
    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, level: str, text: str, values: Iterable[Any] | int = 1) -> None:
        """Add a finding with its count, or with the values that it is about; nothing where there are none."""
        if isinstance(values, int):
            if values:
                self.findings.append(Finding(level, text, values))
            return
        values = [str(value) for value in values]
        if values:
            shown = tuple(repr(value if len(value) <= 40 else value[:37] + "…") for value in values[:3])
            self.findings.append(Finding(level, text, len(values), shown))

    @property
    def errors(self) -> list[Finding]:
        """What makes results wrong."""
        return [finding for finding in self.findings if finding.level == ERROR]

    @property
    def warnings(self) -> list[Finding]:
        """What may."""
        return [finding for finding in self.findings if finding.level == WARNING]

    def __bool__(self) -> bool:
        return not self.errors

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        order = {ERROR: 0, WARNING: 1, NOTE: 2}
        lines = [str(finding) for finding in sorted(self.findings, key=lambda finding: order[finding.level])]
        verdict = f"{len(self.errors)} kinds of errors, {len(self.warnings)} of warnings"
        return "\n".join([f"{self.folder}: {counts or 'nothing to read'}", *lines, verdict])
