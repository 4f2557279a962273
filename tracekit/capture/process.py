"""Runs a tool with a time limit, ends everything that it started, and keeps the end of what it said."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

TAIL_BYTES: Final = 64 * 1024
"""How much of the end of a tool's output is kept."""

_MARK: Final = "TRACEKIT_PROCESS_MARK"
_ERROR_WORDS: Final = re.compile(
    r"\berrors?\b|\bfailed\b|\bfailure\b|\bcannot\b|\bunable\b|\brefused\b|\bdenied\b|\bfatal\b|No space left|"
    r"Traceback|==ERROR==|Error:|Exception|not found|Killed",
    re.IGNORECASE,
)
_NOT_AN_ERROR: Final = re.compile(r"\b0 errors?\b|no errors?\b", re.IGNORECASE)


@dataclass(frozen=True)
class Ended:
    """How a run ended: ``code`` is negative for a signal, ``timed_out`` says that it was ended at its limit."""

    command: tuple[str, ...]
    code: int
    timed_out: bool
    seconds: float
    output: str

    @property
    def lines(self) -> list[str]:
        """The lines of the output as a terminal would leave them: what a progress bar overwrote is gone."""
        lines = (line.rstrip().rpartition("\r")[2].strip() for line in self.output.split("\n"))
        return [line for line in lines if line]

    def quoted(self, most: int = 6) -> list[str]:
        """The tool's own lines about what went wrong, or its last ones."""
        return self.errors(most) or [line[:400] for line in self.lines[-3:]]

    def errors(self, most: int = 6) -> list[str]:
        """The tool's own lines about what went wrong; none where it mentions nothing."""
        errors = [line for line in self.lines if _ERROR_WORDS.search(line) and not _NOT_AN_ERROR.search(line)]
        return [line[:400] for line in errors[-most:]]

    @property
    def how(self) -> str:
        """The ending in words."""
        if self.timed_out:
            return f"was ended after its limit of {self.seconds:.0f} s"
        if self.code < 0:
            names = {number.value: number.name for number in signal.Signals}
            return f"was killed by {names.get(-self.code, f'signal {-self.code}')}"
        return f"ended with exit code {self.code}"


def run(
    command: Sequence[str],
    *,
    limit_s: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Ended:
    """Runs a command to its end, or to its limit. A program that cannot be started ends with exit code 127.

    Whatever it started is ended too, however this function is left: its session, and every process that carries its
    mark in the environment, since profilers start agents in sessions of their own.
    """
    mark = uuid.uuid4().hex
    started = time.monotonic()
    try:
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**(os.environ if environment is None else environment), _MARK: mark},
            cwd=folder,
            start_new_session=True,
        )
    except OSError as error:
        return Ended(tuple(command), 127, False, 0.0, f"{command[0]}: {error.strerror or error}")
    assert child.stdout is not None
    tail = _Tail(child.stdout)
    timed_out = False
    try:
        child.wait(limit_s)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        _end(child, mark)
        tail.finish()
    return Ended(tuple(command), child.returncode, timed_out, time.monotonic() - started, tail.text())


class _Tail:
    """Reads a stream to its end in a thread of its own and keeps the last bytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._kept = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while chunk := os.read(self._stream.fileno(), 65536):
            self._kept += chunk
            del self._kept[:-TAIL_BYTES]

    def finish(self) -> None:
        self._thread.join(2.0)
        if not self._thread.is_alive():
            self._stream.close()

    def text(self) -> str:
        return bytes(self._kept).decode("utf-8", "replace")


def _end(child: subprocess.Popen[bytes], mark: str) -> None:
    """SIGKILL to the whole group, and again until nobody is left who could have forked meanwhile."""
    for _ in range(20):
        _kill_group(child.pid)
        left = _marked(mark)
        for pid in left:
            _kill(pid)
        if not left:
            break
        time.sleep(0.05)
    child.wait()


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _marked(mark: str) -> list[int]:
    """The living processes that carry the mark; none where the system does not tell."""
    wanted, found = f"{_MARK}={mark}".encode(), []
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(pid)
        except OSError:
            continue
    return found
