"""The dashboard: serves it on localhost, picks traces, caches the pipeline and lays out the page."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import streamlit as st

from tracekit import pipeline
from tracekit.errors import InputError, NotComparableError, TracekitError, UsageError
from tracekit.model import labels
from tracekit.model.manifest import CONDITIONS
from tracekit.model.report import Comparison, Mismatch, RegionPair, Report
from tracekit.render.pages import overview as pages

_ADDRESS: Final = "127.0.0.1"
_THEME: Final = {
    "light.primaryColor": "#5558C8",
    "dark.primaryColor": "#8F92F0",
    "baseRadius": "0.375rem",
}

# Name, time of change and size of every file of a trace: what a cached report is valid for.
Stamp = tuple[tuple[str, int, int], ...]


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
        "runner.magicEnabled": False,
        "browser.gatherUsageStats": False,
        "client.toolbarMode": "viewer",
        "logger.level": "warning",
        "logger.hideWelcomeMessage": True,
        **{f"theme.{name}": value for name, value in _THEME.items()},
    }
    flags = [f"--{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in options.items()]
    sys.stderr.write(f"tracekit: the dashboard of {folder} is at http://{_ADDRESS}:{port} (Ctrl-C ends it)\n")
    streamlit_command(
        args=["run", str(Path(__file__)), *flags, "--", str(folder)], prog_name="streamlit", standalone_mode=False
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


def main() -> None:
    """The page: draws every section from the pipeline's results. The script's first argument is the traces' folder."""
    st.set_page_config(page_title="tracekit", layout="wide")
    pages.style()
    pages.masthead()
    try:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else pipeline.samples_directory()
        traces = pipeline.list_traces(folder)
        if not traces:
            raise InputError(
                folder,
                expected="trace bundles, or .sqlite, .ncu-rep or .csv files",
                found="a folder without any",
                remedy="capture a bundle into it, then reload this page",
            )
    except TracekitError as error:
        pages.failure(error)
        return
    _adopt_address(traces)
    columns = st.columns([3, 3, 4], gap="medium")
    reports = []
    for column, side in zip(columns, ("base", "test"), strict=False):
        with column:
            name = st.selectbox(side.capitalize(), list(traces), key=side)
            try:
                reports.append(_report(str(traces[name]), _stamp(traces[name])))
                pages.describe(reports[-1], side)
            except TracekitError as error:
                pages.failure(error)
    if len(reports) == 2:
        comparison = _compare(reports[0], reports[1])
        if comparison is not None:
            with columns[2]:
                pair = _pick_region(comparison)
            _sections(comparison, pair)
    _write_address()


def _sections(comparison: Comparison, pair: RegionPair | None) -> None:
    """The page below the choices: one call a section."""
    pages.headline(comparison)
    if pair is not None:
        pages.findings(pair, pipeline.findings(comparison, pair))
        pages.tree(comparison.regions, pair, lambda place: _select(comparison.regions[place]))
        pages.gaps(pair, comparison.regions)
        pages.metrics(pair)
        pages.kernels(pair)
    pages.captures(comparison)


def _compare(base: Report, test: Report) -> Comparison | None:
    """The comparison under the waivers chosen so far; None where the captures are refused."""
    try:
        comparison = pipeline.diff(base, test, waive=st.session_state.get("waive", ()))
    except NotComparableError as error:
        pages.refusal(error)
        _waivers(error.mismatches)
        return None
    except TracekitError as error:
        pages.failure(error)
        return None
    _waivers(comparison.mismatches)
    return comparison


def _waivers(mismatches: Sequence[Mismatch]) -> None:
    if mismatches:
        known = [mismatch.condition for mismatch in mismatches]
        st.session_state["waive"] = [name for name in st.session_state.get("waive", ()) if name in known]
        pages.waivers(mismatches, "waive")
    else:
        st.session_state.pop("waive", None)


def _pick_region(comparison: Comparison) -> RegionPair | None:
    """The region that the page is about: the one chosen, or the comparison's main one."""
    pairs = {labels.join(pair.path): pair for pair in comparison.regions}
    if not pairs:
        return None
    if st.session_state.get("region") not in pairs:
        first = pipeline.main_region(comparison) or comparison.regions[0]
        _select(first)
    chosen = st.selectbox(
        "Region", list(pairs), key="region", format_func=lambda name: pages.path_words(pairs[name].path)
    )
    return pairs[chosen]


def _select(pair: RegionPair) -> None:
    st.session_state["region"] = labels.join(pair.path)


def _adopt_address(traces: Mapping[str, Path]) -> None:
    """Takes over what the page's address chooses, when the page opens and after the browser's back button.

    An address chooses among the names listed and the conditions known; anything else in it is ignored.
    """
    address = _address()
    if st.session_state.get("address") != address:
        for choice in ("base", "test", "region"):
            if choice in st.query_params:
                st.session_state[choice] = st.query_params[choice]
        st.session_state["waive"] = [name for name in st.query_params.get_all("waive") if name in CONDITIONS]
    # What is not listed goes no further than here; a region is checked where it is picked.
    if any(st.session_state.get(side) not in traces for side in ("base", "test")):
        names = list(traces)
        usual = pipeline.usual_pair(traces) or (names[0], names[min(1, len(names) - 1)])
        for side, name in zip(("base", "test"), usual, strict=True):
            if st.session_state.get(side) not in traces:
                st.session_state[side] = name


def _write_address() -> None:
    """Puts the choices into the page's address, so that it can be linked to."""
    wanted = {name: [st.session_state[name]] for name in ("base", "test", "region") if name in st.session_state}
    if waived := st.session_state.get("waive"):
        wanted["waive"] = list(waived)
    if _address() != wanted:
        st.query_params.from_dict(wanted)
    st.session_state["address"] = wanted


def _address() -> Mapping[str, list[str]]:
    return {name: st.query_params.get_all(name) for name in st.query_params}


@st.cache_resource(max_entries=16, show_spinner="Reading the capture")
def _report(path: str, stamp: Stamp) -> Report:
    """The report of a trace as its files are now; a resource, since it is immutable and shared, and large."""
    return pipeline.report(path)


def _stamp(path: Path) -> Stamp:
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    try:
        stats = [(file.name, file.stat()) for file in files]
    except OSError:
        return ()
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


if __name__ == "__main__":
    # As the imported module, so that what is cached belongs to it and not to a script that is run anew each time.
    from tracekit.app import main as page

    page()
