"""Running a tool: limits, what is ended with it, and what is kept of its output."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tracekit.capture import process


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_command_that_ends():
    ended = process.run([sys.executable, "-c", "print('hello'); raise SystemExit(3)"], limit_s=20)
    assert (ended.code, ended.timed_out, ended.lines) == (3, False, ["hello"])
    assert ended.how == "ended with exit code 3"


def test_a_command_that_is_not_there():
    ended = process.run(["/no/such/tool"], limit_s=20)
    assert ended.code == 127
    assert "/no/such/tool: No such file or directory" in ended.output


def test_the_whole_family_ends_at_the_limit(tmp_path):
    """A child in the same group, and a grandchild in a session of its own that ignores SIGTERM and holds the pipe."""
    code = (
        "import os, subprocess, sys, time\n"
        "a = subprocess.Popen(['sleep', '600'])\n"
        "b = subprocess.Popen(['sh', '-c', 'trap \"\" TERM HUP; sleep 600'], start_new_session=True)\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{a.pid}} {{b.pid}}')\n"
        "print('started', flush=True)\n"
        "time.sleep(600)\n"
    )
    started = time.monotonic()
    ended = process.run([sys.executable, "-c", code], limit_s=1.5)
    assert ended.timed_out
    assert time.monotonic() - started < 20
    assert ended.lines == ["started"]
    assert "was ended after its limit of" in ended.how
    assert all(gone(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_what_a_finished_tool_leaves_running_ends_too(tmp_path):
    code = f"import subprocess; open({str(tmp_path / 'pid')!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid))"
    ended = process.run([sys.executable, "-c", code], limit_s=20)
    assert ended.code == 0
    assert gone(int((tmp_path / "pid").read_text()))


def test_the_end_of_a_long_output_is_kept():
    code = "import sys; sys.stdout.write('x' * 10**6 + '\\nError: the reason\\n')"
    ended = process.run([sys.executable, "-c", code], limit_s=20)
    assert len(ended.output) <= process.TAIL_BYTES
    assert ended.errors() == ["Error: the reason"]


def test_lines_that_a_progress_bar_wrote_over_are_gone():
    ended = process.Ended((), 0, False, 0.0, "[1%]\r[50%]\r[100%] a.nsys-rep\nGenerated:\n0 errors\n")
    assert ended.lines == ["[100%] a.nsys-rep", "Generated:", "0 errors"]
    assert ended.errors() == []
    assert ended.quoted() == ended.lines


def test_a_signal_is_named():
    ended = process.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], limit_s=20)
    assert ended.how == "was killed by SIGKILL"


def test_the_tool_reads_no_input_and_gets_the_environment():
    code = "import os, sys; print(repr(sys.stdin.read()), os.environ['OWN'])"
    ended = process.run([sys.executable, "-c", code], limit_s=20, environment={**os.environ, "OWN": "value"})
    assert ended.lines == ["'' value"]
