"""Times the dashboard's timeline on 1M-kernel captures in headless Chromium: first paint, then each step of a zoom.

``python tests/benchmarks/timeline_speed.py [--kernels N] [--base FILE] [--test FILE] [--runs N]``; needs Chromium.
A step is timed inside the page, from the click to the last change of the document that follows from it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from tile import tile

CAPTURES = Path(__file__).parents[1] / "captures"
STEPS = ("in", "in", "right", "left", "out", "fit", "all", "in", "fit")
QUIET_MS = 400
"""A page that has not changed for so long has finished."""

STEP = """async name => {
    const words = () => document.querySelector('.st-key-window [data-testid=stText]').textContent;
    const chart = () => [...document.querySelectorAll('[data-testid=stVegaLiteChart]')][1];
    const before = words(), begin = performance.now();
    let last = begin;
    const watch = new MutationObserver(() => { last = performance.now(); });
    watch.observe(document.querySelector('.stMainBlockContainer'),
        {subtree: true, childList: true, attributes: true, characterData: true});
    document.querySelector(`.st-key-window-${name} button`).click();
    for (;;) {
        await new Promise(done => setTimeout(done, 10));
        const idle = document.querySelector('[data-testid=stApp][data-test-script-state=notRunning]')
            && !document.querySelector('[data-stale=true]');
        const drawn = words() !== before && chart()?.querySelector('svg, canvas');
        if (idle && drawn && performance.now() - last > QUIET) break;
        if (performance.now() - begin > 30000) throw new Error('it never settles');
    }
    watch.disconnect();
    return last - begin;
}""".replace("QUIET", str(QUIET_MS))


def serve(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """The dashboard of a folder, and its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tracekit", "app", str(folder), "--no-browser", "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    while True:
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=5).close()
            return process, url
        except OSError:
            time.sleep(0.05)


def open_page(browser: Any, url: str) -> tuple[Any, float]:
    """A tab with the timeline drawn, and the seconds that it took."""
    tab = browser.new_context(viewport={"width": 1400, "height": 1000}).new_page()
    started = time.perf_counter()
    tab.goto(f"{url}/?page=timeline&base=base.sqlite&test=test.sqlite")
    tab.wait_for_function(
        "[...document.querySelectorAll('[data-testid=stVegaLiteChart]')][1]?.querySelector('svg, canvas')",
        timeout=300_000,
    )
    return tab, time.perf_counter() - started


def main() -> None:
    """Build, open, step, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--base", type=Path, help="an export to use; else one is made")
    parser.add_argument("--test", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    executable = shutil.which("chromium") or sys.exit("needs Chromium")
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side, sample in (("base", "decode_unfused"), ("test", "decode_fused")):
            given = getattr(arguments, side)
            if given:
                (folder / f"{side}.sqlite").symlink_to(given.resolve())
            else:
                tile(CAPTURES / sample / "timeline.sqlite", folder / f"{side}.sqlite", arguments.kernels)
        process, url = serve(folder)
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
                print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
                tab, seconds = open_page(browser, url)
                print(f"first paint, nothing cached: {seconds:.2f} s")
                tab.close()
                tab, seconds = open_page(browser, url)
                print(f"first paint, cached: {seconds:.2f} s")
                tab.wait_for_timeout(1000)
                times: dict[int, list[float]] = {at: [] for at in range(len(STEPS))}
                for _ in range(arguments.runs):
                    for at, step in enumerate(STEPS):
                        times[at].append(tab.evaluate(STEP, step))
                for at, step in enumerate(STEPS):
                    print(f"{step:>5}: {statistics.median(times[at]):6.0f} ms, worst {max(times[at]):.0f}")
                browser.close()
        finally:
            process.terminate()
            process.wait(10)


if __name__ == "__main__":
    main()
