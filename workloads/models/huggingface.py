"""Any Hugging Face causal LM directory that the user names: its modules patched by class, a request served from it.

Known are the decoders whose layer is RMSNorm, attention with q, k and v projections, RMSNorm, and a SwiGLU of gate, up
and down. :func:`patch` replaces norms, feed-forwards and projections inside a model, whose own ``forward`` and
``generate`` work on. The request itself walks the layers, as the model's forward does: so the cache and the position
stay on the device, and the residual additions, which are no modules, can be annotated and fused.
"""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

from tracekit.errors import InputError, UsageError
from workloads.base import annotate
from workloads.kernels import swiglu_ffn
from workloads.kernels.residual_rmsnorm import add_rmsnorm
from workloads.models.llama import FUSED_GATE_UP_TOKENS, Request

FAMILIES: Final = ("Llama", "Mistral", "Qwen2", "Qwen3")
"""Classes are known as these, followed by DecoderLayer, Attention, MLP and RMSNorm. A family whose norm adds one to its
weight, as Gemma's does, must not be added: its class name does not say so, and the quality gate would refuse it."""


def family_of(model: nn.Module) -> str:
    """The family of a model whose every layer has known classes; UsageError that lists what is unknown."""
    layers = getattr(getattr(model, "model", None), "layers", None)
    name = type(model).__name__
    family = next((known for known in FAMILIES if name == f"{known}ForCausalLM"), None)
    known = f"known are {', '.join(f'{family}ForCausalLM' for family in FAMILIES)}"
    if family is None or not layers:
        found = Counter(type(module).__name__ for module in model.modules())
        listed = ", ".join(f"{count} {kind}" for kind, count in found.most_common(12))
        raise UsageError(f"{name} has no known layers; found: {listed}", remedy=f"name a directory of another: {known}")
    expected = {
        "": "DecoderLayer", "self_attn": "Attention", "mlp": "MLP",
        "input_layernorm": "RMSNorm", "post_attention_layernorm": "RMSNorm",
    }  # fmt: skip
    strange = []
    for number, layer in enumerate(layers):
        for path, kind in expected.items():
            part = getattr(layer, path, None) if path else layer
            if type(part).__name__ != f"{family}{kind}":
                strange.append(f"layers.{number}.{path or 'itself'} is {type(part).__name__}, not {family}{kind}")
        activation = type(getattr(layer.mlp, "act_fn", None)).__name__ if hasattr(layer, "mlp") else "missing"
        if "SiLU" not in activation:
            strange.append(f"layers.{number}.mlp.act_fn is {activation}, not SiLU")
    if strange:
        more = f", and {len(strange) - 6} more" if len(strange) > 6 else ""
        raise UsageError(f"{name} has parts of unknown classes: {'; '.join(strange[:6])}{more}", remedy=known)
    return family


# --- the modules that replace a model's own ------------------------------------------------------------------------


class FusedRMSNorm(nn.Module):  # type: ignore[misc]
    """The library's RMSNorm, one kernel; computes in float64 where its input is that wide."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = norm.weight, norm.variance_epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """RMSNorm over the last dimension."""
        return functional.rms_norm(x, self.weight.shape, self.weight, self.variance_epsilon)


class FusedSwiGLU(nn.Module):  # type: ignore[misc]
    """Gate, up and activation in one kernel, or as one merged product and one kernel; then the library's down."""

    def __init__(self, mlp: Any) -> None:
        super().__init__()
        gate, up = mlp.gate_proj, mlp.up_proj
        self.gate_up = nn.Parameter(torch.cat([gate.weight, up.weight]), requires_grad=False)
        self.down_proj = mlp.down_proj

    def activated(self, x: torch.Tensor) -> torch.Tensor:
        """``silu(gate) * up`` of rows ``[T, d]``."""
        if len(x) <= FUSED_GATE_UP_TOKENS:
            gate, up = self.gate_up.chunk(2)
            return swiglu_ffn.gate_up_silu(x, gate, up)
        return swiglu_ffn.silu_and_mul(functional.linear(x, self.gate_up))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The feed-forward of ``[..., d]``."""
        result: torch.Tensor = self.down_proj(self.activated(x.reshape(-1, x.shape[-1])))
        return result.reshape(x.shape)


class MergedProjection(nn.Module):  # type: ignore[misc]
    """Stands for ``q_proj``: computes q, k and v as one product, and keeps k and v for :class:`Kept`."""

    def __init__(self, attention: Any) -> None:
        super().__init__()
        parts = [attention.q_proj, attention.k_proj, attention.v_proj]
        self.weight = nn.Parameter(torch.cat([part.weight for part in parts]), requires_grad=False)
        biased = parts[0].bias is not None
        self.bias = nn.Parameter(torch.cat([part.bias for part in parts]), requires_grad=False) if biased else None
        self.widths = [len(part.weight) for part in parts]
        self.kept: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """q; :class:`Kept` gives k and v of the same x, in that order."""
        q, *self.kept = functional.linear(x, self.weight, self.bias).split(self.widths, dim=-1)
        return q


class Kept(nn.Module):  # type: ignore[misc]
    """Stands for ``k_proj`` or ``v_proj``: what the merged projection computed of the same input."""

    def __init__(self, merged: MergedProjection) -> None:
        super().__init__()
        self._merged = [merged]  # In a list, so that it is no submodule a second time.

    def forward(self, _x: torch.Tensor) -> torch.Tensor:
        """The next of k and v."""
        return self._merged[0].kept.pop(0)


def patch_norms(model: nn.Module) -> nn.Module:
    """Replaces every RMSNorm of a known model, in place."""
    family = family_of(model)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__ == f"{family}RMSNorm":
                setattr(module, name, FusedRMSNorm(child))
    return model


def patch(model: nn.Module) -> nn.Module:
    """Replaces norms, feed-forwards and q, k and v projections of a known model by fused ones, in place.

    Its own ``forward`` computes the same as before, in fewer kernels. Raises UsageError where a class is unknown.
    """
    family = family_of(model)
    patch_norms(model)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__ == f"{family}MLP":
                biased = [part for part in ("gate_proj", "up_proj") if getattr(child, part).bias is not None]
                if biased:
                    raise UsageError(f"{name} has biases: {', '.join(biased)}", remedy="name another model")
                setattr(module, name, FusedSwiGLU(child))
            elif type(child).__name__ == f"{family}Attention":
                merged = MergedProjection(child)
                child.q_proj, child.k_proj, child.v_proj = merged, Kept(merged), Kept(merged)
    return model


# --- a request -----------------------------------------------------------------------------------------------------


class DirectoryModel(dict[str, torch.Tensor]):
    """The parameters of a loaded model by name and ``tokens``, the sequence of a request; ``module`` holds the former.

    ``prompt`` is the length of the prompt.
    """

    def __init__(self, module: Any, tokens: torch.Tensor, prompt: int) -> None:
        super().__init__({**dict(module.named_parameters()), "tokens": tokens})
        self.module, self.prompt = module, prompt


class StaticCache:
    """Keys and values of every layer at fixed addresses ``[1, g, S, e]``; a layer's attention calls :meth:`update`.

    ``at`` are the positions that are being computed; ``whole`` says whether attention reads all S (behind a mask), or
    as many as are written.
    """

    def __init__(self, room: int) -> None:
        self._room, self._layers = room, dict[int, tuple[torch.Tensor, torch.Tensor]]()
        self.at, self.whole = torch.empty(0, dtype=torch.int64), False

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes the keys and values of the positions, and returns those to attend to."""
        if layer not in self._layers:
            room = (*keys.shape[:2], self._room)
            self._layers[layer] = keys.new_zeros(*room, keys.shape[3]), values.new_zeros(*room, values.shape[3])
        cached = self._layers[layer]
        for mine, new in zip(cached, (keys, values), strict=True):
            mine.index_copy_(2, self.at, new)
        if self.whole:
            return cached
        return cached[0][:, :, : keys.shape[2]], cached[1][:, :, : keys.shape[2]]


class Eager(Request):
    """The model's own modules, one after the other."""

    def __init__(self, loaded: DirectoryModel) -> None:
        self.model = self._made(loaded.module)
        super().__init__(
            loaded["tokens"], loaded.prompt, self.model.lm_head.weight.shape[0], self.model.lm_head.weight
        )  # fmt: skip
        self.cache = StaticCache(self.room)
        layers = self.model.model.layers
        accepted = inspect.signature(layers[0].self_attn.forward).parameters
        # Renamed in transformers 5.24.
        self._cache_name = "cache" if "cache" in accepted else "past_key_values"
        if self._cache_name not in accepted:
            raise UsageError("this transformers passes a cache under a name unknown here", remedy="install version 5")
        if self.annotated:
            for layer in layers:
                _annotate(layer)

    def _made(self, module: Any) -> Any:
        """A copy of the module tree that shares the parameters: what is patched or annotated is this variant's own."""
        return copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()})

    def _seam(self, x: torch.Tensor, residual: torch.Tensor, norm: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """The normalized sum and the sum."""
        total = residual + x
        return norm(total), total

    def _layers(self, tokens: torch.Tensor, at: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """The normalized rows ``[1, T, d]`` that the head takes."""
        model, mark = self.model.model, self.mark
        self.cache.at, self.cache.whole = at, mask is not None
        x = model.embed_tokens(tokens[None])
        positions = at[None]
        angles = model.rotary_emb(x, position_ids=positions)
        norms = [*(layer.input_layernorm for layer in model.layers[1:]), model.norm]
        with mark("norm"):
            normed = model.layers[0].input_layernorm(x)
        for number, (layer, next_norm) in enumerate(zip(model.layers, norms, strict=True)):
            with mark(f"layer{number}"):
                with mark("self_attn"):
                    attended, *_ = layer.self_attn(
                        hidden_states=normed, position_embeddings=angles, attention_mask=mask, position_ids=positions,
                        **{self._cache_name: self.cache},
                    )  # fmt: skip
                with mark("residual_rmsnorm"):
                    normed, x = self._seam(attended, x, layer.post_attention_layernorm)
                with mark("swiglu_ffn"):
                    fed = layer.mlp(normed)
                with mark("residual_rmsnorm"):
                    normed, x = self._seam(fed, x, next_norm)
        result: torch.Tensor = normed
        return result

    def prefill(self) -> None:
        """See :meth:`Request.prefill`."""
        with torch.no_grad():
            at = torch.arange(self.prompt, device=self.tokens.device)
            normed = self._layers(self.tokens[: self.prompt], at, None)
            with self.mark("head"):
                self._give_first(self.model.lm_head(normed[0, -1:]))

    def decode(self) -> None:
        """See :meth:`Request.decode`."""
        with torch.no_grad():
            mask = (torch.arange(self.room, device=self.tokens.device) <= self.position)[None, None, None, :]
            normed = self._layers(self.tokens.index_select(0, self.position), self.position, mask)
            with self.mark("head"):
                self._give(self.model.lm_head(normed[0]))


class Compiled(Eager):
    """``torch.compile`` of the prefill and of the decode step; not annotated inside."""

    annotated = False

    def __init__(self, loaded: DirectoryModel) -> None:
        super().__init__(loaded)
        self.prefill = torch.compile(super().prefill, dynamic=False)  # type: ignore[method-assign]
        self.decode = torch.compile(super().decode, dynamic=False)  # type: ignore[method-assign]


class Fused(Eager):
    """The patched modules, and the additions between them fused with the norm that follows."""

    def _made(self, module: Any) -> Any:
        return patch(super()._made(module))

    def _seam(self, x: torch.Tensor, residual: torch.Tensor, norm: Any) -> tuple[torch.Tensor, torch.Tensor]:
        width = x.shape[-1]
        normed, total = add_rmsnorm(
            x.reshape(-1, width), residual.reshape(-1, width), norm.weight, norm.variance_epsilon
        )
        return normed.view(x.shape), total.view(x.shape)


def _annotate(layer: Any) -> None:
    """Ranges ``qkv``, ``o_proj``, ``gate_up_silu`` and ``down`` around those of a layer's modules that it still has."""

    def around(label: str, first: Any, last: Any) -> None:
        first.register_forward_pre_hook(lambda *_: annotate(label).__enter__())
        last.register_forward_hook(lambda *_: annotate(label).__exit__(None, None, None))

    attention, mlp = layer.self_attn, layer.mlp
    around("qkv", attention.q_proj, attention.v_proj)
    around("o_proj", attention.o_proj, attention.o_proj)
    # The activation follows the products and is no module of its own everywhere: the range ends where down begins.
    (mlp if isinstance(mlp, FusedSwiGLU) else mlp.gate_proj).register_forward_pre_hook(
        lambda *_: annotate("gate_up_silu").__enter__()
    )
    mlp.down_proj.register_forward_pre_hook(lambda *_: annotate("gate_up_silu").__exit__(None, None, None))
    around("down", mlp.down_proj, mlp.down_proj)


def reference(loaded: DirectoryModel) -> torch.Tensor:
    """The logits of a request in float64, ``[N, vocabulary]``, in one causal pass over all its tokens.

    Norms compute in float64 too; the model's own rotary tables stay float32.
    """

    class Wide(Eager):
        annotated = False

        def _made(self, module: Any) -> Any:
            return patch_norms(copy.deepcopy(module).double())

    tokens = loaded["tokens"]
    everything = Wide(DirectoryModel(loaded.module, tokens, len(tokens)))
    with torch.no_grad():
        at = torch.arange(len(tokens), device=tokens.device)
        rows = everything._layers(tokens, at, None)[0, loaded.prompt - 1 : -1]
        result: torch.Tensor = everything.model.lm_head(rows)
    return result


# --- the directory that the user names -----------------------------------------------------------------------------


def load(
    folder: Path, layers: int, tokens: torch.Tensor, prompt: int, dtype: torch.dtype, device: str
) -> DirectoryModel:
    """The first ``layers`` layers of the causal LM in a directory; on ``meta`` only its form.

    Raises UsageError where transformers is missing or a class is unknown, InputError where nothing can be loaded.
    """
    try:
        from transformers import AutoConfig, AutoModelForCausalLM
    except ImportError:
        raise UsageError(
            "transformers, which loads the model, is not installed", remedy="pip install transformers"
        ) from None
    how: dict[str, Any] = {"attn_implementation": "sdpa"}
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        if device == "meta":
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(config, dtype=dtype, **how)
        else:
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True, **how)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            folder, expected="a causal LM that transformers can load", found=str(error)[:200],
            remedy="name a directory with config.json and the weights",
        ) from None  # fmt: skip
    family_of(model)
    window = getattr(config, "sliding_window", None)
    slides = "sliding_attention" in (getattr(config, "layer_types", None) or ["sliding_attention"])
    if window and slides and len(tokens) > window:
        raise UsageError(
            f"{type(model).__name__} attends to the last {window} tokens, and the request has "
            f"{len(tokens)}: sliding windows are not served here",
            remedy="use fewer tokens",
        )
    model.model.layers = model.model.layers[:layers]
    return DirectoryModel(model.to(device).eval().requires_grad_(False), tokens, prompt)
