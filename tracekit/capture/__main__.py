"""``python -m tracekit.capture``: capture, doctor, scrub and read where nothing but Python is installed."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final

from tracekit.capture import options, summary
from tracekit.capture.session import Observer, Outcome, run
from tracekit.errors import TracekitError, UsageError

PROG: Final = "python -m tracekit.capture"
VERBS: Final = ("doctor", "scrub", "read")


def capture(
    arguments: Sequence[str],
    prog: str,
    *,
    observer: Observer | None = None,
    show: Callable[[Sequence[Outcome]], object] | None = None,
) -> int:
    """Captures, and prints the summary; the exit code."""
    request = options.capture_request(arguments, prog)
    with _ending_on_request():
        outcomes = run(request, observer or summary.Lines())
    if show is not None:
        show(outcomes)
    else:
        _print(summary.text(outcomes))
    return summary.exit_code(outcomes)


def doctor(arguments: Sequence[str], prog: str) -> int:
    """Examines the machine; 1 where a check fails."""
    from tracekit.capture import doctor as doctors

    chosen = options.doctor_parser(prog).parse_args(list(arguments))
    checks = doctors.examine(try_capture=not chosen.no_capture)
    _print(doctors.as_json(checks) if chosen.format == "json" else doctors.as_text(checks))
    return doctors.exit_code(checks)


def scrub(arguments: Sequence[str], prog: str) -> int:
    """Copies a trace without what is private, and lists what was removed."""
    from tracekit.capture import scrub as scrubbing

    chosen = options.scrub_parser(prog).parse_args(list(arguments))
    removed = scrubbing.scrub(chosen.trace, chosen.output, force=chosen.force)
    _print(scrubbing.as_json(removed) if chosen.format == "json" else scrubbing.as_text(removed))
    return 0


def read(arguments: Sequence[str], prog: str) -> int:
    """Finishes a capture that lacks its export."""
    from tracekit.capture import finish

    chosen = options.read_parser(prog).parse_args(list(arguments))
    for line in finish.finish(chosen.trace, chosen.output, force=chosen.force):
        _print(line)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: a verb, or else a capture."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    verbs = {"capture": capture, "doctor": doctor, "scrub": scrub, "read": read}
    try:
        if not given:
            raise UsageError("nothing to do", remedy=f"{PROG} --help; further verbs: {', '.join(VERBS)}")
        verb = verbs.get(given[0])
        return verb(given[1:], f"{PROG} {given[0]}") if verb else capture(given, PROG)
    except TracekitError as error:
        sys.stderr.write(f"tracekit: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("tracekit: interrupted; finished bundles are kept, run it again to go on\n")
        return 130


class _ending_on_request:  # noqa: N801 - reads as a statement
    """Turns a request to end (SIGTERM, SIGHUP) into an exception, so that tools are ended and drafts removed."""

    def __enter__(self) -> None:
        self._before = {}
        for number in (signal.SIGTERM, signal.SIGHUP):
            try:
                self._before[number] = signal.signal(number, self._end)
            except ValueError:  # not the main thread: nobody sends us signals there
                return

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    @staticmethod
    def _end(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(f"signal {number}")


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
