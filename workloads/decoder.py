"""A full request: prefill of a prompt and decode of new tokens, static cache; SmolLM2, Llama's sizes, or a directory.

Latencies of its phases are what a server quotes: ``prefill`` is the time to first token, ``decode`` the time per output
token, ``request`` the whole.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracekit.errors import InputError, UsageError
from workloads.base import Inputs, Kind, Lazy, Output, Shape, Tolerance, Variant, Workload

if TYPE_CHECKING:
    import torch

    from workloads.models import huggingface, llama, loading
else:
    torch = Lazy("torch")
    huggingface = Lazy("workloads.models.huggingface")
    llama = Lazy("workloads.models.llama")
    loading = Lazy("workloads.models.loading")

# Parameters of a layer, of the embedding and of the head follow from these: (layers, hidden, ffn, heads, kv heads,
# head size, vocabulary). The same as loading.CONFIGS, here because a listing needs no torch; a test compares them.
SIZES: Final = {
    "smollm2": (30, 576, 1536, 9, 3, 64, 49152),
    "llama1b": (16, 2048, 8192, 32, 8, 64, 128_256),
    "llama8b": (32, 4096, 14336, 32, 8, 128, 128_256),
    "tiny": (2, 48, 40, 4, 2, 8, 37),
    "odd": (2, 40, 29, 5, 1, 10, 31),
}

DIRECTORY: Final = "directory"
"""The model in shape names that stands for the Hugging Face directory that the environment names."""
DIRECTORY_VARIABLE: Final = "TRACEKIT_MODEL"

_NAME: Final = re.compile(r"(?P<model>[a-z0-9]+)_t(?P<tokens>\d{1,6})_n(?P<new>\d{1,6})(_l(?P<layers>\d{1,3}))?")


def sizes_of(model: str) -> tuple[int, int, int, int, int, int, int]:
    """What :data:`SIZES` says of a model, or the ``config.json`` of the directory that the environment names."""
    if model != DIRECTORY:
        return SIZES[model]
    named = os.environ.get(DIRECTORY_VARIABLE)
    if not named:
        raise UsageError(
            f"no directory is named for the model {DIRECTORY!r}",
            remedy=f"set {DIRECTORY_VARIABLE} to a directory with a causal LM: config.json and the weights",
        )
    path = Path(named) / "config.json"
    try:
        config = json.loads(path.read_text())
        heads = int(config["num_attention_heads"])
        hidden = int(config["hidden_size"])
        return (
            int(config["num_hidden_layers"]), hidden, int(config["intermediate_size"]), heads,
            int(config.get("num_key_value_heads") or heads), int(config.get("head_dim") or hidden // heads),
            int(config["vocab_size"]),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            path, expected="the configuration of a Llama-like causal LM", found=f"{type(error).__name__}: {error}",
            remedy=f"set {DIRECTORY_VARIABLE} to a directory that transformers' save_pretrained wrote",
        ) from None  # fmt: skip


def shape(name: str) -> Shape:
    """The shape that a name spells out, ``MODEL_tPROMPT_nNEW`` or ``..._lLAYERS``; UsageError where it does not.

    Any number of prompt tokens and new ones, and the first so many layers. A directory's sizes are dimensions too, so
    that two directories are not taken for one model.
    """
    match = _NAME.fullmatch(name)
    if match is None or match["model"] not in (*SIZES, DIRECTORY):
        raise UsageError(
            f"no shape of decoder is named {name!r}",
            remedy=f"use MODEL_tPROMPT_nNEW, as in smollm2_t128_n32, or MODEL_tPROMPT_nNEW_lLAYERS; models are "
            f"{', '.join(SIZES)}, and {DIRECTORY}, which is the Hugging Face directory named in {DIRECTORY_VARIABLE}",
        )
    tokens, new = int(match["tokens"]), int(match["new"])
    most, hidden, ffn, *_, vocabulary = sizes_of(match["model"])
    layers = int(match["layers"] or most)
    if tokens < 1 or new < 1 or not 1 <= layers <= most:
        raise UsageError(
            f"{name}: {tokens} prompt tokens, {new} new ones, {layers} of {most} layers",
            remedy=f"use at least one of each, and at most {most} layers",
        )
    dims = {"new_tokens": new, "layers": layers}
    if match["model"] == DIRECTORY:
        dims |= {"hidden": hidden, "ffn": ffn, "vocabulary": vocabulary}
    return Shape(name, tokens, dims, match["model"])


def _listed(*names: str) -> tuple[Shape, ...]:
    return tuple(map(shape, names))


def model_of(shape: Shape) -> str:
    """The model that a shape is of."""
    return shape.name.split("_")[0]


def _inputs(shape: Shape, dtype: torch.dtype, device: str, seed: int) -> Inputs:
    """The weights, and the tokens ``[T + N]`` of a request: random ones, the same for every variant and dtype."""
    model = model_of(shape)
    vocabulary = sizes_of(model)[-1]
    count = shape.tokens + shape.dims["new_tokens"]
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocabulary, (count,), generator=generator).to(device)
    if model == DIRECTORY:
        folder = Path(os.environ[DIRECTORY_VARIABLE])
        return huggingface.load(folder, shape.dims["layers"], tokens, shape.tokens, dtype, device)
    return loading.weights_of(model, shape.dims["layers"], tokens, shape.tokens, dtype, device, seed)


def _prepare(variant: str) -> Callable[[Inputs], Any]:
    """Makes the model of that variant, the class of that name, of what was loaded."""

    def prepare(inputs: Inputs) -> Any:
        return getattr(llama if isinstance(inputs, llama.Weights) else huggingface, variant)(inputs)

    return prepare


def _reference(inputs: Inputs) -> Output:
    result: Output = (llama if isinstance(inputs, llama.Weights) else huggingface).reference(inputs)
    return result


def _run(model: Any) -> Output:
    output: Output = model.request()
    return output


def _graphs(model: Any) -> Any:
    return model.graphs()


def _parameters(shape: Shape) -> tuple[int, int]:
    """Parameters of all layers, and of the head."""
    _, hidden, ffn, heads, kv_heads, size, vocabulary = sizes_of(model_of(shape))
    layer = hidden * size * (2 * heads + 2 * kv_heads) + 3 * hidden * ffn + 2 * hidden
    return shape.dims["layers"] * layer + hidden, vocabulary * hidden


def lower_bound_bytes(shape: Shape, element_bytes: int) -> int:
    """HBM bytes of a request: every weight once a step, and in a decode step the cache behind the token once."""
    _, _, _, _, kv_heads, size, _ = sizes_of(model_of(shape))
    layers, head = _parameters(shape)
    new = shape.dims["new_tokens"]
    cached = sum(range(shape.tokens, shape.tokens + new - 1))
    cache = 2 * shape.dims["layers"] * kv_heads * size * (cached + shape.tokens + new - 1)
    return (new * (layers + head) + cache) * element_bytes


def _flops(shape: Shape) -> int:
    """Of the matrix products: every layer's for each token, the head's for each new one, and attention's."""
    _, _, _, heads, _, size, _ = sizes_of(model_of(shape))
    layers, head = _parameters(shape)
    new = shape.dims["new_tokens"]
    total = shape.tokens + new - 1
    attended = total * (total + 1) // 2
    return 2 * total * layers + 2 * new * head + 4 * shape.dims["layers"] * heads * size * attended


WORKLOAD = Workload(
    name="decoder",
    doc="a full request: prefill of T tokens, decode of N, static cache; logits of given tokens, greedy choice beside",
    baseline="eager",
    variants=(
        Variant(
            "eager", "call by call, as Hugging Face's LlamaForCausalLM",
            _run, _prepare("Eager"), _graphs,
        ),
        Variant(
            "compiled", "torch.compile of the eager prefill and decode step",
            _run, _prepare("Compiled"), _graphs, kind=Kind.COMPILED,
        ),
        Variant(
            "fused", "Triton: five kernels a layer at one token, merged products and fused seams in the prefill; of a "
            "directory, its modules patched by class",
            _run, _prepare("Fused"), _graphs, kind=Kind.TRITON, needs_gpu=True,
        ),
    ),
    shapes=_listed(
        "smollm2_t128_n32", "smollm2_t16_n64", "smollm2_t1024_n8",
        "llama1b_t128_n16_l4", "llama1b_t2048_n4_l4", "llama8b_t128_n16_l4", "llama8b_t2048_n4_l4",
    ),
    odd_shapes=_listed("tiny_t5_n3", "tiny_t1_n3", "tiny_t33_n1", "odd_t7_n3", "odd_t20_n2"),
    spell=shape,
    dtypes=("bfloat16", "float16", "float32"),
    inputs=_inputs,
    reference=_reference,
    # Errors of every layer add up. In float32 sums differ by their order alone: the error itself decides.
    tolerances={"bfloat16": Tolerance(4e-2), "float16": Tolerance(5e-3), "float32": Tolerance(1e-5, ratio=100)},
    lower_bound_bytes=lower_bound_bytes,
    flops=_flops,
    phase="request",
)  # fmt: skip
