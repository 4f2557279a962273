"""Kernels match many to many, and no time or launch is lost or counted twice."""

from hypothesis import given
from hypothesis import strategies as st

from tracekit.compare.kernels import match_kernels
from tracekit.model.report import KernelTotal

kernels = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.integers(1, 9), st.integers(0, 999)), unique_by=lambda k: k[0]
).map(lambda rows: [KernelTotal(name, count, busy, busy) for name, count, busy in rows])


@given(kernels, kernels)
def test_groups_conserve_totals(base: list[KernelTotal], test: list[KernelTotal]) -> None:
    matches = match_kernels(base, test)
    for side, given_kernels in (("base", base), ("test", test)):
        grouped = [kernel for match in matches for kernel in getattr(match, side)]
        assert sorted(kernel.name for kernel in grouped) == sorted(kernel.name for kernel in given_kernels)
        assert sum(kernel.busy_ns or 0 for kernel in grouped) == sum(kernel.busy_ns or 0 for kernel in given_kernels)
    shared = {kernel.name for kernel in base} & {kernel.name for kernel in test}
    assert {match.base[0].name for match in matches if match.match == "same"} == shared
    assert sum(match.match != "same" for match in matches) <= 1


def test_what_replaces_what() -> None:
    one, two, three = (KernelTotal(name, 1, 1, 1) for name in ("one", "two", "three"))
    assert [m.match for m in match_kernels([one, two], [three])] == ["replaced"]
    assert [m.match for m in match_kernels([one, two], [two])] == ["only_base", "same"]
    assert [m.match for m in match_kernels([two], [one, two])] == ["only_test", "same"]
    assert match_kernels([], []) == ()


def test_equal_short_names_are_different_kernels() -> None:
    first, second = KernelTotal("void Kernel<A>(P)", 1, 1, 1), KernelTotal("void Kernel<B>(P)", 1, 1, 1)
    (match,) = match_kernels([first], [second])
    assert match.match == "replaced"
