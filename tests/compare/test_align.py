"""Regions pair by path, after renaming, and roots whose name alone differs."""

import pytest

from tracekit.compare.align import align
from tracekit.errors import UsageError
from tracekit.model.report import Region


def tree(*paths: str) -> list[Region]:
    """Regions from paths written with dots, since labels may hold slashes."""
    return [Region(tuple(path.split(".")), 1, {}) for path in paths]


def paired(base: list[Region], test: list[Region], *rename: tuple[str, str]) -> list[tuple[str | None, str | None]]:
    return [
        (".".join(b.path) if b else None, ".".join(t.path) if t else None) for b, t in align(base, test, rename).pairs
    ]


def test_equal_paths_pair_and_the_rest_stands_alone() -> None:
    assert paired(tree("a", "a.x", "a.y"), tree("a", "a.y", "a.z")) == [
        ("a", "a"),
        ("a.x", None),
        ("a.y", "a.y"),
        (None, "a.z"),
    ]


def test_a_region_of_the_test_alone_stands_where_its_tree_has_it() -> None:
    base = tree("a", "a.x", "a.x.old", "a.y", "b")
    test = tree("new", "a", "a.x", "a.x.in", "a.z", "a.y", "b", "b.in")
    order = [t or b for b, t in paired(base, test)]
    assert order == ["a", "a.x", "a.x.in", "a.x.old", "a.z", "a.y", "b", "b.in", "new"]


def test_a_substring_is_no_match() -> None:
    assert paired(tree("step 1"), tree("step 10", "step 10.x")) == [
        ("step 1", None),
        (None, "step 10"),
        (None, "step 10.x"),
    ]


def test_roots_that_differ_in_name_only_pair_with_a_note() -> None:
    base, test = tree("unfused/T1/iter", "unfused/T1/iter.layer0"), tree("fused/T1/iter", "fused/T1/iter.layer0")
    assert paired(base, test) == [
        ("unfused/T1/iter", "fused/T1/iter"),
        ("unfused/T1/iter.layer0", "fused/T1/iter.layer0"),
    ]
    assert "differ in name only" in align(base, test).notes[0]


def test_decode_never_pairs_with_prefill() -> None:
    pairs = paired(
        tree("unfused/T1/iter", "unfused/T1/iter.layer0"), tree("fused/T2048/iter", "fused/T2048/iter.layer0")
    )
    assert all(base is None or test is None for base, test in pairs)


def test_a_compiled_root_without_inner_ranges_pairs_with_its_eager_one() -> None:
    assert ("eager/T1/iter", "compiled/T1/iter") in paired(
        tree("eager/T1/iter", "eager/T1/iter.layer0"), tree("compiled/T1/iter")
    )


def test_an_ambiguous_root_is_left_unpaired_and_said_so() -> None:
    base, test = tree("old", "old.x"), tree("new1", "new1.x", "new2", "new2.x")
    assert ("old", None) in paired(base, test)
    assert any("--rename" in note for note in align(base, test).notes)
    assert paired(base, test, ("old", "new2"))[:2] == [("old", "new2"), ("old.x", "new2.x")]


def test_two_bases_for_one_root_are_left_unpaired() -> None:
    pairs = paired(tree("a", "a.x", "b", "b.x"), tree("c", "c.x"))
    assert ("a", None) in pairs
    assert ("b", None) in pairs


def test_a_renamed_label_is_renamed_anywhere_in_a_path() -> None:
    base = tree("iter", "iter.norm", "iter.mlp.norm", "iter.mlp")
    test = tree("iter", "iter.rms", "iter.mlp.rms", "iter.mlp")
    assert paired(base, test, ("norm", "rms")) == [
        ("iter", "iter"),
        ("iter.norm", "iter.rms"),
        ("iter.mlp.norm", "iter.mlp.rms"),
        ("iter.mlp", "iter.mlp"),
    ]


@pytest.mark.parametrize(
    ("rename", "words"),
    [
        ([("gone", "rms")], ["base", "'gone'"]),
        ([("norm", "gone")], ["test", "'gone'"]),
        ([("norm", "rms"), ("norm", "iter")], ["'norm'", "two"]),
    ],
)
def test_a_renaming_that_cannot_be_is_refused(rename: list[tuple[str, str]], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        align(tree("iter", "iter.norm"), tree("iter", "iter.rms"), rename)
    assert all(word in str(caught.value) for word in words)
