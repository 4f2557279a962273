"""Writes a gate as JUnit XML, which every CI system shows: a test case for each check."""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree as Xml

from tracekit.errors import NotComparableError
from tracekit.model.report import Comparison, Gate
from tracekit.render.literal import literal
from tracekit.render.words import check_found, check_place, check_sides, grounds, headline

_NO_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def diff_junit(comparison: Comparison, gate: Gate | None = None) -> str:
    """A suite with the checks of the gate: failed is a failure, undetermined an error, unmeasured skipped.

    The answer is a test case of its own, which never fails: only rules do.
    """
    suite = Xml.Element("testsuite", name="tracekit")
    answer = Xml.SubElement(suite, "testcase", classname="tracekit", name="did it help?")
    Xml.SubElement(answer, "system-out").text = _xml(f"{headline(comparison)} {grounds(comparison)}")
    failures = errors = skipped = 0
    for check in gate.checks if gate else ():
        case = Xml.SubElement(
            suite, "testcase", classname="tracekit.gate", name=_xml(f"{check.rule} [{check_place(check)}]")
        )
        base, test = check_sides(check)
        message = _xml(f"{check_found(check)}; base {base}, test {test}")
        match check.outcome:
            case "failed":
                Xml.SubElement(case, "failure", type="failed", message=message)
                failures += 1
            case "undetermined":
                Xml.SubElement(case, "error", type="undetermined", message=message)
                errors += 1
            case "unmeasured":
                Xml.SubElement(case, "skipped", message=message)
                skipped += 1
            case _:
                Xml.SubElement(case, "system-out").text = message
    for name in gate.failed_quality if gate else ():
        case = Xml.SubElement(suite, "testcase", classname="tracekit.quality", name=_xml(name))
        Xml.SubElement(case, "failure", type="failed", message="the test side failed this quality check")
        failures += 1
    counts = {"tests": len(suite), "failures": failures, "errors": errors, "skipped": skipped}
    for key, value in counts.items():
        suite.set(key, str(value))
    return _written(suite)


def refusal_junit(error: NotComparableError) -> str:
    """An error case that says why two captures are not comparable."""
    suite = Xml.Element("testsuite", name="tracekit", tests="1", failures="0", errors="1", skipped="0")
    case = Xml.SubElement(suite, "testcase", classname="tracekit", name="comparable")
    Xml.SubElement(case, "error", type="not comparable", message=_xml(str(error)))
    return _written(suite)


def _xml(text: str) -> str:
    """Text without what XML cannot hold; ElementTree escapes the rest."""
    return _NO_XML.sub("\ufffd", literal(text))


def _written(suite: Xml.Element) -> str:
    Xml.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(suite, encoding="unicode")
