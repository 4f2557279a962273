"""Times the dashboard in headless Chromium: first useful paint, a change of region, and a zoom of the timeline.

``python tests/benchmarks/app_speed.py [--kernels N] [--runs N]``; needs Playwright and Debian's chromium. On the
bundled samples and on an export of a million kernels whose report is cached (the second opening); medians in seconds.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from tile import tile

HERE = Path(__file__).parent
SAMPLE = HERE.parent / "captures" / "decode_unfused" / "timeline.sqlite"
START_S = 3
"""How long after the server answers a first reader comes: it reads the usual pair meanwhile."""
GIVE_UP_S = 30
IDLE = """() => document.querySelector('[data-testid=stApp][data-test-script-state=notRunning]')
    && !document.querySelector('[data-stale=true]')"""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The dashboard of a folder, until it is left."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tracekit", "app", str(folder), "--no-browser", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                urllib.request.urlopen(f"{url}/_stcore/health", timeout=5)
                break
            except OSError:
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()


def opened(context: Any, url: str, selector: str) -> tuple[Any, float]:
    """A tab, and the seconds until what one came for is drawn."""
    tab = context.new_page()
    tab.set_default_timeout(120_000)
    started = time.perf_counter()
    tab.goto(url)
    tab.locator(selector).first.wait_for()
    return tab, time.perf_counter() - started


def timed(
    tab: Any, ready: Callable[[], Any], act: Callable[[Any], None], shown: Callable[[], str], runs: int
) -> list[float]:
    """Seconds from an action on what was made ready to its effect on what is shown, several times."""
    out = []
    for _ in range(runs):
        tab.wait_for_function(IDLE)
        target = ready()
        before = shown()
        started = time.perf_counter()
        act(target)
        while shown() == before:
            time.sleep(0.002)
            if time.perf_counter() - started > GIVE_UP_S:
                sys.exit("the page does not change")
        out.append(time.perf_counter() - started)
    return out


def measure(browser: Any, folder: Path, query: str, runs: int) -> None:
    """Opens, changes and zooms, and prints each median."""
    with served(folder) as url:
        context = browser.new_context(viewport={"width": 1400, "height": 1200})
        time.sleep(START_S)
        tab, cold = opened(context, f"{url}/?{query}", ".st-key-findings table")
        tab.close()
        paints = []
        for _ in range(runs):
            tab, paint = opened(context, f"{url}/?{query}", ".st-key-findings table")
            paints.append(paint)
            tab.close()
        first = f"{cold:.2f} s at the first opening, {START_S} s after the server's start"
        print(f"first useful paint: {first}; {statistics.median(paints):.2f} s once cached")

        tab, _ = opened(context, f"{url}/?{query}", ".st-key-metrics table")
        tab.wait_for_function(IDLE)

        def listed() -> Any:
            tab.locator(".st-key-region input").click()
            option = tab.get_by_role("option").nth(next(places))
            option.wait_for()
            time.sleep(0.3)  # The list unfolds.
            return option.element_handle()

        for key, what in (("findings", "five rows"), ("metrics", "last table")):
            places = iter([1, 0] * ((runs + 1) // 2))
            drawn = tab.locator(f".st-key-{key} table")
            count = 2 * ((runs + 1) // 2)
            changes = timed(tab, listed, lambda option: option.click(), lambda d=drawn: str(d.text_content()), count)
            print(f"change of region: {statistics.median(changes):.2f} s to the {what}")
        tab.close()

        tab, paint = opened(context, f"{url}/?page=timeline&{query}", "[data-testid=stVegaLiteChart] :is(svg, canvas)")
        words = tab.locator(".st-key-window [data-testid=stText]")
        button = tab.get_by_role("button", name="Zoom in")
        zooms = timed(
            tab, button.element_handle, lambda found: found.click(), lambda: str(words.text_content()), min(runs, 6)
        )
        print(f"timeline: {paint:.2f} s to its first chart; a zoom {statistics.median(zooms):.2f} s")
        context.close()


def main() -> None:
    """Build, serve, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or sys.exit("needs chromium")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        print("bundled samples")
        measure(browser, HERE.parents[1] / "sample_traces", "base=request_eager&test=request_fused", arguments.runs)
        tile(SAMPLE, Path(folder, "big.sqlite"), arguments.kernels)
        print(f"{arguments.kernels:,} kernels")
        measure(browser, Path(folder), "base=big.sqlite&test=big.sqlite", arguments.runs)
        browser.close()


if __name__ == "__main__":
    main()
