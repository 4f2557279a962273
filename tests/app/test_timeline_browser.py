"""The timeline in Chromium: wheel, drag, brush and keyboard move both sides, and the address follows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser

ARTIFACTS = Path(__file__).parents[2] / "artifacts"
PAIR = "?page=timeline&base=decode_unfused&test=decode_fused"


def window(page: Any) -> tuple[float, float]:
    """The window as the page says it, in us."""
    page.settle()
    words = page.tab.locator(".st-key-window [data-testid=stText]").text_content()
    low, high = words.split(": ")[0].split(" to ")
    return tuple(float(end.removesuffix(" us").replace("\N{MINUS SIGN}", "-").replace(",", "")) for end in (low, high))


def moved(page: Any, before: tuple[float, float]) -> tuple[float, float]:
    """The window once it is another one."""
    words = page.tab.locator(".st-key-window [data-testid=stText]")
    for _ in range(100):
        if window(page) != before:
            break
        page.tab.wait_for_timeout(50)
    assert words.count() == 1
    return window(page)


def chart(page: Any, number: int) -> dict[str, float]:
    """Where a chart lies: 0 is the strip, 1 the timeline."""
    drawn = page.tab.locator("[data-testid=stVegaLiteChart]").nth(number)
    drawn.locator("svg, canvas").first.wait_for()
    box: dict[str, float] = drawn.bounding_box()
    return box


def drag(page: Any, box: dict[str, float], begin: float, end: float) -> None:
    """From one share of a chart's width to another, in its upper part."""
    at = box["y"] + min(20, box["height"] / 2) if box["height"] < 120 else box["y"] + box["height"] / 2
    page.tab.mouse.move(box["x"] + begin * box["width"], at)
    page.tab.mouse.down()
    page.tab.mouse.move(box["x"] + end * box["width"], at, steps=5)
    page.tab.mouse.up()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_wheel_drag_brush_and_keys_move_the_window(
    open_page: Callable[..., Any], dashboard: Callable[..., str], scheme: str
) -> None:
    page = open_page(f"{dashboard()}/{PAIR}", scheme)
    fitted = window(page)
    box = chart(page, 1)
    page.tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    for _ in range(3):
        page.tab.mouse.wheel(0, -120)
    wheeled = moved(page, fitted)
    assert fitted[0] < wheeled[0] < wheeled[1] < fitted[1]
    page.wait_for_address("from=")

    drag(page, box, 0.7, 0.5)
    dragged = moved(page, wheeled)
    assert dragged[0] > wheeled[0]
    assert dragged[1] - dragged[0] == pytest.approx(wheeled[1] - wheeled[0], abs=0.3)

    page.tab.keyboard.press("w")
    nearer = moved(page, dragged)
    assert nearer[1] - nearer[0] == pytest.approx((dragged[1] - dragged[0]) / 2, abs=0.3)

    drag(page, chart(page, 0), 0.3, 0.6)
    brushed = moved(page, nearer)
    assert brushed[1] - brushed[0] == pytest.approx(0.3 * (fitted[1] - fitted[0]), rel=0.2)
    drag(page, chart(page, 0), 0.62, 0.8)
    assert moved(page, brushed)[0] > brushed[0], "a second brush"
    ARTIFACTS.mkdir(exist_ok=True)
    page.tab.screenshot(path=ARTIFACTS / f"timeline-zoomed-{scheme}.png")

    page.tab.keyboard.press("f")
    page.tab.wait_for_url(lambda url: "from=" not in url)
    assert window(page) == fitted


def test_a_hover_tells_what_a_kernel_is(open_page: Callable[..., Any], dashboard: Callable[..., str]) -> None:
    page = open_page(f"{dashboard()}/{PAIR}")
    box = chart(page, 1)
    tooltip = page.tab.locator("#vg-tooltip-element")
    for share in range(20, 95, 3):
        # From the top: the legend, the title, four levels of ranges and the calls lie above the stream.
        page.tab.mouse.move(box["x"] + share / 100 * box["width"], box["y"] + 28 + 30 + 4 * 20 + 18 + 13)
        page.tab.wait_for_timeout(60)
        if tooltip.count() and "registers" in (tooltip.text_content() or ""):
            break
    text = tooltip.text_content()
    for word in ("duration", "grid", "block", "registers", "shared memory", "DRAM read, written"):
        assert word in text


def test_a_link_opens_window_instance_and_colours(open_page: Callable[..., Any], dashboard: Callable[..., str]) -> None:
    page = open_page(f"{dashboard()}/{PAIR}&from=100000&to=300000&base_instance=2&colour=kernel")
    assert window(page) == (100.0, 300.0)
    assert page.tab.locator(".st-key-instance-of-base input").input_value() == "3"
    assert page.tab.locator(".st-key-colours").get_by_role("radio", name="Kernel").is_checked()
    assert "base_instance=2" in page.tab.url
