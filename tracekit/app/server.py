"""Serves the dashboard on localhost until it is interrupted."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Final

from tracekit import pipeline
from tracekit.errors import UsageError

UPLOAD_MB: Final = 500
"""The largest file that the page takes."""

_ADDRESS: Final = "127.0.0.1"
_THEME: Final = {
    "light.primaryColor": "#5558C8",
    "dark.primaryColor": "#8F92F0",
    "baseRadius": "0.375rem",
}


def serve(directory: Path | None, *, port: int, open_browser: bool) -> int:
    """Runs the dashboard on localhost until it is interrupted; returns the exit code.

    ``directory`` holds the traces, or is None for the bundled samples. Raises InputError where it is no folder and
    UsageError where the port is taken.
    """
    folder = pipeline.samples_directory() if directory is None else directory
    pipeline.list_traces(folder)
    _refuse_taken(port)
    from streamlit.web.cli import main as streamlit_command

    options = {
        # Streamlit takes any folder that is not called site-packages, such as pip's --target, for its own checkout.
        "global.developmentMode": False,
        "server.address": _ADDRESS,
        "server.port": port,
        "server.headless": not open_browser,
        "server.showEmailPrompt": False,
        "server.fileWatcherType": "none",
        "server.enableXsrfProtection": True,
        "server.maxUploadSize": UPLOAD_MB,
        "runner.magicEnabled": False,
        "browser.gatherUsageStats": False,
        "client.toolbarMode": "viewer",
        "logger.level": "warning",
        "logger.hideWelcomeMessage": True,
        **{f"theme.{name}": value for name, value in _THEME.items()},
    }
    flags = [f"--{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in options.items()]
    sys.stderr.write(f"tracekit: the dashboard of {folder} is at http://{_ADDRESS}:{port} (Ctrl-C ends it)\n")
    script = Path(__file__).with_name("page.py")
    streamlit_command(
        args=["run", str(script), *flags, "--", str(folder)], prog_name="streamlit", standalone_mode=False
    )
    return 0


def _refuse_taken(port: int) -> None:
    """Streamlit itself would end with a log line and exit code 1."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_ADDRESS, port))
        except OSError as error:
            raise UsageError(
                f"cannot listen on {_ADDRESS}:{port}: {error.strerror or error}",
                remedy="name another port with --port, or end the program that has it",
            ) from None
