"""Quality first: what a side's checks of numbers and of task quality say about the whole comparison."""

from __future__ import annotations

from tracekit.model.report import Report


def failed_checks(report: Report) -> tuple[str, ...]:
    """The names of the checks that a capture's bundle records as failed."""
    return tuple(str(check["check"]) for check in report.capture.get("quality", ()) if check["passed"] is False)


def computes_wrong(report: Report) -> bool:
    """Whether a check failed: then nothing about this side can be called better."""
    return bool(failed_checks(report))


def quality_notes(side: str, report: Report) -> list[str]:
    """A note where checks failed; and none where nobody checked, which the JSON tells by an empty list."""
    failed = failed_checks(report)
    if not failed:
        return []
    return [f"{side}: quality checks failed: {', '.join(failed)}. What computes wrong results is not better."]
