"""Labels and paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.model import labels


@pytest.mark.parametrize(
    ("label", "normal"),
    [
        ("aten::add, op_id = 314359", "aten::add"),
        ("aten::mm, seq = 12, op_id = 3", "aten::mm"),
        ("aten::mm, seq = 0, op_id = 3, sizes = [[1, 2], [2, 3]]", "aten::mm, sizes = [[1, 2], [2, 3]]"),
        ("aten::mm, op_id = 3, input_op_ids = [[1, 0], [2, 0]]", "aten::mm"),
        ("step 1", "step 1"),
        ("step 10", "step 10"),
        ("x = 3", "x = 3"),
        ("layer0", "layer0"),
        ("decode[17]", "decode"),
        ("prefill[0]", "prefill"),
        ("layers[3]", "layers[3]"),
        ("decode[x]", "decode[x]"),
        ("my decode[3]", "my decode[3]"),
    ],
)
def test_only_numbers_that_count_calls_go(label: str, normal: str) -> None:
    assert labels.normalize(label) == normal
    assert labels.normalize(normal) == normal


def test_an_indexed_phase_is_an_instance_of_the_phase() -> None:
    assert labels.indexed("decode", 17) == "decode[17]"
    with pytest.raises(ValueError, match="no phase that repeats"):
        labels.indexed("layer", 3)


def test_a_root_label_reads_back() -> None:
    root = labels.parse_root("unfused/T2048/iter")
    assert root == labels.RootLabel("unfused", 2048, "iter")
    assert str(root) == "unfused/T2048/iter"
    assert labels.parse_root("layer0") is None


@given(st.lists(st.text(alphabet="ab/\\", max_size=4), min_size=1, max_size=4).map(tuple))
def test_a_joined_path_is_unique(path: tuple[str, ...]) -> None:
    other = (*path[:-1], path[-1] + "/")
    assert labels.join(path) != labels.join(other)
    assert labels.join((*path, "a")) != labels.join((*path[:-1], path[-1] + "/a"))
