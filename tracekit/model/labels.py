"""The grammar of NVTX labels: how a workload names its ranges, and how a path of labels is written.

Standard library only: workloads and the capture side import this module in a bare container.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

DOMAIN: Final = "tracekit"
"""The NVTX domain that tracekit's own workloads push their ranges into."""

UNATTRIBUTED: Final = "<unattributed>"
"""The label of the pseudo region that holds operations launched outside every range."""

Path = tuple[str, ...]
"""A region: the chain of enclosing labels, outermost first. A tuple, because a label may contain a slash."""

_ROOT = re.compile(r"(?P<variant>[^/]+)/T(?P<tokens>\d+)/(?P<phase>[^/]+)")
_INDEXED_PHASE = re.compile(r"(?P<phase>prefill|decode|step|iter|iteration|token)\[\d+\]")
_LIST = r"\[(?:[^\[\]]|\[[^\]]*\])*\]"
_RUNNING_NUMBER = re.compile(rf", (?:seq|op_id|input_op_ids) = (?:{_LIST}|[^,\[]*)(?=,|$)")


@dataclass(frozen=True)
class RootLabel:
    """A root range of a tracekit workload: ``VARIANT/T<tokens>/<phase>``, for example ``fused/T1/iter``."""

    variant: str
    tokens: int
    phase: str

    def __str__(self) -> str:
        return f"{self.variant}/T{self.tokens}/{self.phase}"


def parse_root(label: str) -> RootLabel | None:
    """The parts of a root label, or None where the label is not of that form."""
    match = _ROOT.fullmatch(label)
    if match is None:
        return None
    return RootLabel(match["variant"], int(match["tokens"]), match["phase"])


def normalize(label: str) -> str:
    """The label without a number that counts its calls, so that repeated calls are instances of one region.

    That is the index of a phase (``decode[17]`` becomes ``decode``), and the running numbers that
    ``torch.autograd.profiler.emit_nvtx`` appends (``aten::add, op_id = 314359`` becomes ``aten::add``). Every other
    label is returned as it is, ``layers[3]`` too, which names a layer and no repetition; labels match exactly.
    """
    if label.endswith("]") and (indexed := _INDEXED_PHASE.fullmatch(label)):
        return indexed["phase"]
    return _RUNNING_NUMBER.sub("", label) if " = " in label else label


def indexed(phase: str, index: int) -> str:
    """The label of one repetition of a phase, ``decode[17]``; :func:`normalize` takes the index off again."""
    label = f"{phase}[{index}]"
    if normalize(label) != phase:
        raise ValueError(f"{phase!r} is no phase that repeats: use prefill, decode, step, iter, iteration or token")
    return label


def join(path: Path) -> str:
    """A path as one line of text. A slash or backslash inside a label is escaped by a backslash."""
    return "/".join(label.replace("\\", "\\\\").replace("/", "\\/") for label in path)
