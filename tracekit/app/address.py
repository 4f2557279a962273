"""Keeps what a reader chose in the page's address, and takes it from there: a link shows what its writer saw."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Final

import streamlit as st

from tracekit.model.manifest import CONDITIONS

CHOICES: Final = ("page", "base", "test", "region")
"""What every page has."""

FILTERS: Final = (
    "at_least", "base_instance", "test_instance", "from", "to", "colour", "devices", "launch", "series", "search",
)  # fmt: skip
"""What single pages have: a number, a name that the page checks, or words to look for.

Only those of the open page are kept.
"""

_LONGEST: Final = 2000


def adopt(traces: Container[str], pages: Container[str], usual: Callable[[], Mapping[str, str]]) -> None:
    """Takes over what the address chooses, when the page opens and after the browser's back button.

    An address chooses among the names listed and the conditions known; anything else in it is ignored, so that no
    address opens a file. A region, and what filters mean, is checked where it is used. ``usual`` tells what is chosen
    where nothing is.
    """
    state = st.session_state
    if state.get("address") != current():
        for name in (*CHOICES, *FILTERS):
            if name in st.query_params and len(st.query_params[name]) <= _LONGEST:
                state[name] = st.query_params[name]
            elif name in FILTERS:
                state.pop(name, None)
        state["waive"] = [name for name in st.query_params.get_all("waive") if name in CONDITIONS]
    known = {"page": pages, "base": traces, "test": traces}
    lacking = [name for name, names in known.items() if state.get(name) not in names]
    if lacking:
        state.update({name: value for name, value in usual().items() if name in lacking})


def write() -> None:
    """Puts the choices into the address."""
    state = st.session_state
    wanted = {name: [str(state[name])] for name in (*CHOICES, *FILTERS) if state.get(name) not in (None, "")}
    if waived := state.get("waive"):
        wanted["waive"] = list(waived)
    if current() != wanted:
        st.query_params.from_dict(wanted)
    state["address"] = wanted


def drop_filters() -> None:
    """Forgets what belongs to the page that is being left."""
    for name in FILTERS:
        st.session_state.pop(name, None)


def number(name: str) -> float | None:
    """A filter as a finite number; None where it is not set or is none."""
    try:
        value = float(st.session_state.get(name, ""))
    except (TypeError, ValueError):
        return None
    return value if abs(value) < 1e18 else None


def current() -> Mapping[str, list[str]]:
    """What the address says now."""
    return {name: st.query_params.get_all(name) for name in st.query_params}
