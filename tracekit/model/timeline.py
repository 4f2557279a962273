"""What a timeline shows of one capture: where an instance lies, which lanes there are, and the slices of a window."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tracekit.model.labels import Path

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Place:
    """Where an instance of a region lies on its capture's clock, in ns; or the whole capture, where ``path`` is None.

    [``start_ns``, ``end_ns``) holds its range and all device work launched inside it. ``origin_ns`` is what the two
    sides of a comparison are aligned at: the start of the range, or of the first operation where there is no range.
    ``measure`` names the column of table instances by which instances are ordered, and ``value_ns`` is its value; both
    are None where none is known; ``is_median`` is whether no other instance is nearer to the median. ``thread`` is that
    of the range.
    """

    path: Path | None
    instance: int
    instances: int
    origin_ns: int
    start_ns: int
    end_ns: int
    measure: str | None = None
    value_ns: int | None = None
    is_median: bool = False
    thread: int | None = None


@dataclass(frozen=True)
class Lane:
    """A row of a timeline, and exactly what it holds in the window: how much of it is covered, by how many rows.

    ``kind`` is ranges (NVTX ranges of a thread at one ``depth``), calls (API calls of a thread), operations (of a
    device's stream) or gaps (of a device).
    """

    kind: str
    thread: int | None = None
    depth: int | None = None
    device_id: int | None = None
    process: int | None = None
    context: int | None = None
    stream: int | None = None
    count: int = 0
    busy_ns: int = 0


@dataclass(frozen=True)
class LeftOut:
    """What has activity in the window and no lane for lack of room."""

    threads: int = 0
    depths: int = 0
    devices: int = 0
    streams: int = 0


@dataclass(frozen=True)
class View:
    """A window [``start_ns``, ``end_ns``) of a capture, as much as a screen can show.

    ``slices`` (table slices) has the rows of ``lanes`` of kinds ranges, calls and operations, ``gaps`` (table
    gap_slices) those of kind gaps. Over the rows of a lane, counts and busy time sum to the lane's, exactly.
    """

    start_ns: int
    end_ns: int
    lanes: tuple[Lane, ...]
    slices: pd.DataFrame
    gaps: pd.DataFrame
    left_out: LeftOut


@dataclass(frozen=True)
class Activity:
    """How busy a capture's devices are along a window: ``ratio[i]`` of bin i, all bins equally long.

    A device that has no work at all in the capture does not count; empty where there is none that has.
    """

    start_ns: int
    end_ns: int
    ratio: tuple[float, ...]


class Source(Protocol):
    """A capture's timeline, ready to be looked at; times are on the capture's clock, in ns."""

    @property
    def device_ids(self) -> tuple[int, ...]:
        """The devices that have work, in order."""

    def find(self, path: Path | None, instance: int | None = None) -> Place | None:
        """The instance of a region, by default the median one; the whole capture for None."""

    def view(self, low: int, high: int, *, place: Place | None = None, devices: Collection[int] = ()) -> View:
        """What the window [low, high) shows; lanes are chosen with regard to ``place``, among ``devices`` if named."""

    def activity(self, low: int, high: int, bins: int) -> Activity:
        """How busy the devices are along the window [low, high)."""
