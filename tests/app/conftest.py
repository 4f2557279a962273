"""Fixtures of the dashboard: it in a process of its own, a page in Chromium, and what the page must show."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tracekit import pipeline
from tracekit.app.page import PARTS
from tracekit.model.units import MISSING, Unit, write, write_change
from tracekit.render.json import diff_json

EMPTY = "\N{NO-BREAK SPACE}"  # How Streamlit draws an empty cell.
LAUNCHER = "from tracekit.cli import main; main()"
BROWSER_OPTIONS = (
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Served:
    """A dashboard in a process of its own, until it is stopped."""

    def __init__(self, command: Sequence[str], *arguments: str, cwd: Path, **environment: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [*command, "app", *arguments, "--no-browser", "--port", str(self.port)],
            cwd=cwd, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def health(self, *, timeout: float = 30.0) -> str:
        """What the server says of itself, as soon as it answers."""
        end = time.monotonic() + timeout
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=5) as answer:
                    return str(answer.read().decode())
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    pytest.fail(f"the dashboard does not answer: {self.stop()}")
                time.sleep(0.05)

    def stop(self) -> str:
        """Ends it; returns what it printed."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.communicate(timeout=10)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.communicate()[0]


@pytest.fixture(scope="session")
def start() -> type[Served]:
    """Starts a dashboard: ``start(command, *arguments, cwd=..., **environment)``."""
    return Served


@pytest.fixture(scope="session")
def dashboard(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Iterator[Callable[..., str]]:
    """Serves a folder, by default that of the fixture ``samples``, once a session; returns the address."""
    running: dict[tuple[str, ...], Served] = {}

    def serve(*arguments: str) -> str:
        arguments = arguments or (str(samples),)
        if arguments not in running:
            cwd = tmp_path_factory.mktemp("cwd")
            running[arguments] = Served([sys.executable, "-c", LAUNCHER], *arguments, cwd=cwd)
            running[arguments].health()
        return running[arguments].url

    yield serve
    for served in running.values():
        served.stop()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(BROWSER_OPTIONS))
        yield browser
        browser.close()


class Page:
    """The dashboard in a browser tab, with everything that went wrong in it."""

    def __init__(self, context: Any, url: str) -> None:
        self.tab = context.new_page()
        self.tab.set_default_timeout(15_000)
        self.problems: list[str] = []
        self.hosts: set[str] = set()
        self.tab.on("console", self._console)
        self.tab.on("pageerror", lambda error: self.problems.append(str(error)))
        self.tab.on("request", lambda request: self.hosts.add(request.url.split("/")[2] if "//" in request.url else ""))
        self.tab.goto(url)
        self.settle()

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.problems.append(message.text)

    def settle(self) -> None:
        """Waits until the script has run and everything that it sent is drawn."""
        self.tab.wait_for_function(
            """() => document.querySelector('[data-testid=stApp][data-test-script-state=notRunning]')
                && document.querySelector('.st-key-base') && !document.querySelector('[data-stale=true]')"""
        )

    def table(self, key: str) -> list[list[str]]:
        """The cells of a table, as the document holds them; the columns' titles first.

        Read until they stay as they are: Streamlit draws code in cells late, with a module of its own.
        """

        def read() -> list[list[str]]:
            rows: list[list[str]] = self.tab.locator(f".st-key-{key} table").evaluate(
                "table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))"
            )
            return [["" if cell == EMPTY else cell for cell in row] for row in rows]

        found = read()
        for _ in range(20):
            self.tab.wait_for_timeout(250)
            before, found = found, read()
            if found == before:
                break
        return found

    def tree(self) -> list[list[str]]:
        """The cells of the region tree, less indentation and the mark of the selected region."""
        grid = self.tab.locator(".st-key-tree table[role=grid]")
        grid.wait_for(state="attached")
        rows: list[list[str]] = grid.evaluate(
            "grid => [...grid.rows].slice(1).map(row => [...row.cells].map(cell => cell.textContent))"
        )
        return [[row[0].replace("\u2003", "").removeprefix("● "), *row[1:]] for row in rows]

    def choose(self, key: str, option: str) -> None:
        """Picks an option of a selectbox or a multiselect by its text, and waits for the page."""
        self.tab.locator(f".st-key-{key} input").first.click()
        self.tab.get_by_role("option", name=option, exact=True).click()
        self.settle()

    def part(self, title: str) -> None:
        """Opens a part of the page by its title in the first row."""
        name = next(name for name, part in PARTS.items() if part.title == title)
        self.tab.locator(".st-key-page").get_by_text(title, exact=True).click()
        self.wait_for_address(f"page={name}")

    def wait_for_address(self, part: str) -> None:
        self.tab.wait_for_url(lambda url: part in url)
        self.settle()


@pytest.fixture(scope="session")
def contexts(chromium: Any) -> dict[str, Any]:
    """A window for each colour scheme: tabs of one window share the cache, so that Streamlit is loaded once."""
    size = {"width": 1400, "height": 3200}
    return {scheme: chromium.new_context(viewport=size, color_scheme=scheme) for scheme in ("light", "dark")}


@pytest.fixture
def open_page(contexts: dict[str, Any]) -> Iterator[Callable[..., Page]]:
    """Opens the dashboard at an address; afterwards, nothing may have gone wrong in the browser."""
    pages: list[Page] = []

    def start(url: str, scheme: str = "light") -> Page:
        pages.append(Page(contexts[scheme], url))
        return pages[-1]

    yield start
    for page in pages:
        page.tab.close()
        assert page.problems == []


@pytest.fixture
def odd(nsys: Callable[..., Any], samples: Path, tmp_path: Path) -> Path:
    """Traces that lack something, and one with twenty devices."""
    nsys(file="no_nvtx.sqlite").gpu().launch((10, 20), (30, 40)).launch((50, 60), (70, 90)).write()
    nsys(file="no_device.sqlite").range(0, 100, "step").write()
    many = nsys(file="many.sqlite")
    for device in range(20):
        many.gpu(id=device)
    many.range(0, 10_000, "step")
    for device in range(20):
        many.launch((100 * device, 100 * device + 10), (100 * device + 200, 100 * device + 260), device=device)
    many.write()
    shutil.copy(samples / "decode_fused" / "cold.ncu.csv", tmp_path / "counters.csv")
    return tmp_path


@pytest.fixture(scope="session")
def cells() -> Callable[[Any, str], list[list[str]]]:
    """``cells(app, title)``: the first table whose first column has that title, less the markup of its cells."""

    def find(app: Any, title: str) -> list[list[str]]:
        tables = [
            [_cells(line) for line in element.value.splitlines()]
            for element in app.markdown
            if _is_table(element.value)
        ]
        head, _, *rows = next(table for table in tables if table[0][0] == title)
        assert {len(row) for row in rows} <= {len(head)}
        return rows

    return find


def _is_table(text: str) -> bool:
    return text.startswith("| ")


def _cells(line: str) -> list[str]:
    """A line of a table of Markdown, split at the bars that no backslash takes back."""
    return [_plain(cell.strip()) for cell in re.findall(r"\|((?:[^\\|]|\\.)*)(?=\|)", line)]


def _plain(cell: str) -> str:
    cell = re.sub(r":(?:green|red|gray|orange|blue)\[(.*?)\]", r"\1", cell).removeprefix("**").removesuffix("**")
    if fence := re.match("`+", cell):
        return cell.removeprefix(fence[0]).removesuffix(fence[0]).replace(r"\|", "|")
    return re.sub(r"\\(.)", r"\1", cell)


class Expected:
    """What the page must show of a comparison: the figures of the command line's JSON, as they are written."""

    def __init__(self, base: Path, test: Path, *, waive: Sequence[str] = ()) -> None:
        self.comparison = pipeline.diff(base, test, waive=waive)
        self.data = json.loads(diff_json(self.comparison))

    def pair(self, *path: str) -> dict[str, Any]:
        return next(pair for pair in self.data["regions"] if pair["path"] == list(path))

    def metrics(self, *path: str) -> list[list[str]]:
        """The rows of the metrics table, less their explanations."""
        return [
            [
                name,
                *figures(change),
                MISSING if change["better"] == "none" else change["better"],
                change["unit"],
                (change.get("kind") or "").replace("_", " "),
            ]
            for name, change in self.pair(*path)["metrics"].items()
        ]

    def tree(self) -> list[list[str]]:
        """The rows of the region tree, less the bars."""
        rows = []
        for pair in self.data["regions"]:
            change, kernels = (pair["metrics"].get(name, NOTHING) for name in ("device_ns", "kernel_count"))
            sides = [pair["instances"][side] for side in ("base", "test")]
            only = "  (test only)" if not pair["base_path"] else "  (base only)" if not pair["test_path"] else ""
            rows.append([
                pair["path"][-1] + only, *figures(change), *figures(kernels)[:2],
                f"{sides[0]:,}" if sides[0] == sides[1] else f"{sides[0]:,} → {sides[1]:,}",
            ])  # fmt: skip
        return rows

    def latency(self) -> list[list[str]]:
        """The rows of the latency table."""
        rows = []
        for protocol, change in self.data["latency"].items():
            for side, report in (("base", self.comparison.base), ("test", self.comparison.test)):
                entry = next(entry for entry in report.latency if entry.protocol == protocol)
                rows.append([
                    protocol if side == "base" else "", side, write(change[side], Unit.NS),
                    f"{write(entry.p20_ns, Unit.NS)} to {write(entry.p80_ns, Unit.NS)}", str(entry.processes),
                    "" if side == "base" else write_change(change["ratio"]),
                ])  # fmt: skip
        return rows

    def kernels(self, match: str, side: str, *path: str) -> list[list[str]]:
        return [
            [kernel["name"], write(kernel["count"], Unit.COUNT), write(kernel["busy_ns"], Unit.NS)]
            for group in self.pair(*path)["kernels"]
            if group["match"] == match
            for kernel in group[side]
        ]


NOTHING = {"base": None, "test": None, "delta": None, "ratio": None, "unit": ""}


def figures(change: dict[str, Any]) -> list[str]:
    return [
        write(change["base"], change["unit"]),
        write(change["test"], change["unit"]),
        write(change["delta"], change["unit"], signed=True),
        write_change(change["ratio"]),
    ]


@pytest.fixture(scope="session")
def expected() -> Callable[..., Expected]:
    return Expected
