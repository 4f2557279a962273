"""A decoder of the Llama architecture with a static cache: a request of prefill and decode, computed in two ways.

:class:`Eager` calls what Hugging Face's modules call, one after the other. :class:`Fused` does the same mathematics
with this project's kernels. Both take their tokens from a given sequence, so that every variant computes the same; the
greedy choice is computed all the same, as a server would.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.nn import functional

from workloads.base import Output, annotate, phase
from workloads.kernels import decoder as kernels
from workloads.kernels import swiglu_ffn
from workloads.kernels.residual_rmsnorm import add_rmsnorm

FUSED_GATE_UP_TOKENS: Final = 128
"""Prompts up to this long take one kernel for gate, up and activation; longer ones the library's product (measured)."""


@dataclass(frozen=True)
class Config:
    """The sizes of a model: names and meanings of Hugging Face's LlamaConfig."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    eps: float
    rope_base: float


class Weights(dict[str, torch.Tensor]):
    """Tensors of a model by name, with its config; and ``tokens``, the sequence of a request, and its prompt's length.

    Names: ``embedding``, ``norm``, ``head``, and ``K.attention_norm``, ``K.q``, ``K.k``, ``K.v``, ``K.o``,
    ``K.mlp_norm``, ``K.gate``, ``K.up``, ``K.down`` of layer K; matrices are ``[out, in]``.
    """

    def __init__(self, tensors: dict[str, torch.Tensor], config: Config, prompt: int) -> None:
        super().__init__(tensors)
        self.config, self.prompt = config, prompt


def rope_tables(config: Config, room: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin ``[room, e]``, each half the same, computed in float32 (float64 for float64) and rounded."""
    wide = torch.float64 if like.dtype == torch.float64 else torch.float32
    exponent = torch.arange(0, config.head_size, 2, device=like.device, dtype=wide) / config.head_size
    angle = torch.arange(room, device=like.device, dtype=wide)[:, None] * config.rope_base**-exponent
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos().to(like.dtype), angle.sin().to(like.dtype)


def _nothing(_label: str) -> AbstractContextManager[None]:
    return nullcontext()


class Request:
    """The buffers of a request of T prompt tokens and N new ones, and how it runs: step by step, or as CUDA graphs.

    The tokens are given, so that every variant computes the same and its logits can be judged; each step computes the
    greedy choice all the same. ``like`` is any tensor of the model's dtype and device.
    """

    annotated: bool = True

    def __init__(self, tokens: torch.Tensor, prompt: int, vocabulary: int, like: torch.Tensor) -> None:
        self.tokens, self.prompt, self.room = tokens, prompt, len(tokens)
        self.new_tokens = self.room - prompt
        self.position = torch.zeros(1, dtype=torch.int64, device=like.device)
        self.logits = like.new_zeros(self.new_tokens, vocabulary)
        self.chosen = torch.zeros(self.room, dtype=torch.int64, device=like.device)
        self.mark: Callable[[str], AbstractContextManager[Any]] = annotate if self.annotated else _nothing

    def prefill(self) -> None:
        """Computes the prompt: fills the cache, writes the first logits and the first choice."""
        raise NotImplementedError

    def decode(self) -> None:
        """Computes the token at the position, writes its logits and its choice, and moves the position on."""
        raise NotImplementedError

    def start(self) -> None:
        """Sets the position to the first token after the prompt."""
        self.position.fill_(self.prompt)

    def request(self, prefill: Callable[[], None] | None = None, decode: Callable[[], None] | None = None) -> Output:
        """A whole request; returns its logits ``[N, vocabulary]``, a copy."""
        with phase("prefill"):
            self.start()
            (prefill or self.prefill)()
        for index in range(1, self.new_tokens):
            with phase("decode", index):
                (decode or self.decode)()
        return self.logits.clone()

    def captured(self) -> tuple[Callable[[], None], Callable[[], None]]:
        """Replays of the prefill and of one decode step, each a CUDA graph."""
        # Of one new token the prompt gives the logits: no step follows, and there is no room for one.
        parts = [self.prefill, self.decode] if self.new_tokens > 1 else [self.prefill]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # Libraries choose and allocate at their first calls, which no capture allows.
            self.start()
            for part in parts:
                part()
            self.start()
        torch.cuda.current_stream().wait_stream(stream)
        graphs = [torch.cuda.CUDAGraph() for _ in parts]
        for part, graph in zip(parts, graphs, strict=True):
            with torch.cuda.graph(graph):
                part()
        return graphs[0].replay, graphs[-1].replay

    def graphs(self) -> Callable[[], Output]:
        """The request as CUDA graphs: one of the prefill, and one of a decode step that every token replays."""
        prefill, decode = self.captured()
        return lambda: self.request(prefill, decode)

    def _give_first(self, logits: torch.Tensor) -> None:
        """Writes the prompt's last logits ``[1, vocabulary]`` and choice."""
        self.logits[:1] = logits
        self.chosen[self.prompt - 1 : self.prompt] = logits.argmax(-1)

    def _give(self, logits: torch.Tensor) -> None:
        """Writes a step's logits ``[1, vocabulary]`` and choice, and moves the position on."""
        self.position.add_(1)
        self.logits.index_copy_(0, self.position - self.prompt, logits)
        self.chosen.index_copy_(0, self.position - 1, logits.argmax(-1))


class Model(Request):
    """What both ways share beside the request: weights, the tables of RoPE and the cache."""

    def __init__(self, weights: Weights) -> None:
        self.weights, self.config = weights, weights.config
        config, like = self.config, weights["embedding"]
        super().__init__(weights["tokens"], weights.prompt, config.vocabulary, like)
        self.cos, self.sin = rope_tables(config, self.room, like)
        cache = (config.layers, config.kv_heads, self.room, config.head_size)
        self.keys, self.values = like.new_zeros(cache), like.new_zeros(cache)

    def read_prompt(self) -> torch.Tensor:
        """Computes all layers of the prompt and fills the cache; the normalized rows ``[T, d]`` that the head takes."""
        raise NotImplementedError

    def prefill(self) -> None:
        """See :meth:`Request.prefill`."""
        normed = self.read_prompt()
        with self.mark("head"):
            self._give_first(functional.linear(normed[-1:], self.weights["head"]))

    def _take(self) -> torch.Tensor:
        """The embedding of the token at the position, ``[1, d]``."""
        return functional.embedding(self.tokens.index_select(0, self.position), self.weights["embedding"])


class Eager(Model):
    """Call by call, as Hugging Face's LlamaForCausalLM with a static cache."""

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        wide = x.to(torch.float32) if x.dtype != torch.float64 else x
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.config.eps)
        return self.weights[name] * wide.to(x.dtype)

    def _rotated(self, heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = heads.chunk(2, dim=-1)
        return heads * cos + torch.cat((-second, first), dim=-1) * sin

    def _attention(self, x: torch.Tensor, layer: int, at: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        config, weights, mark = self.config, self.weights, self.mark
        tokens, size = len(x), config.head_size
        with mark("qkv"):
            q, k, v = (
                functional.linear(x, weights[f"{layer}.{name}"]).view(tokens, -1, size).transpose(0, 1)
                for name in "qkv"
            )
        with mark("attention"):
            cos, sin = self.cos.index_select(0, at), self.sin.index_select(0, at)
            q, k = self._rotated(q, cos, sin), self._rotated(k, cos, sin)
            keys, values = self.keys[layer], self.values[layer]
            keys.index_copy_(1, at, k)
            values.index_copy_(1, at, v)
            repeats = config.heads // config.kv_heads
            if mask is None:
                keys, values = keys[:, :tokens], values[:, :tokens]
            keys, values = keys.repeat_interleave(repeats, dim=0), values.repeat_interleave(repeats, dim=0)
            attended = functional.scaled_dot_product_attention(
                q[None], keys[None], values[None], attn_mask=mask, is_causal=mask is None
            )
            attended = attended[0].transpose(0, 1).reshape(tokens, config.heads * size)
        with mark("o_proj"):
            return functional.linear(attended, weights[f"{layer}.o"])

    def _layers(self, x: torch.Tensor, at: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        weights, mark = self.weights, self.mark
        with mark("norm"):
            normed = self._norm(x, "0.attention_norm")
        for layer in range(self.config.layers):
            with mark(f"layer{layer}"):
                attended = self._attention(normed, layer, at, mask)
                with mark("residual_rmsnorm"):
                    x = x + attended
                    normed = self._norm(x, f"{layer}.mlp_norm")
                with mark("swiglu_ffn"):
                    with mark("gate_up_silu"):
                        gate = functional.linear(normed, weights[f"{layer}.gate"])
                        up = functional.linear(normed, weights[f"{layer}.up"])
                        activated = functional.silu(gate) * up
                    with mark("down"):
                        fed = functional.linear(activated, weights[f"{layer}.down"])
                with mark("residual_rmsnorm"):
                    x = x + fed
                    last = layer + 1 == self.config.layers
                    normed = self._norm(x, "norm" if last else f"{layer + 1}.attention_norm")
        return normed

    def read_prompt(self) -> torch.Tensor:
        """See :meth:`Model.read_prompt`."""
        at = torch.arange(self.prompt, device=self.tokens.device)
        return self._layers(functional.embedding(self.tokens[: self.prompt], self.weights["embedding"]), at, None)

    def decode(self) -> None:
        """See :meth:`Request.decode`."""
        mask = (torch.arange(self.room, device=self.tokens.device) <= self.position)[None, None, None, :]
        normed = self._layers(self._take(), self.position, mask)
        with self.mark("head"):
            self._give(functional.linear(normed, self.weights["head"]))


class Unannotated(Eager):
    """The same without ranges inside, for ``torch.compile``: a range inside it would break the graph or vanish."""

    annotated = False


class Compiled(Unannotated):
    """``torch.compile`` of the eager prefill and of the eager decode step."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights)
        self.prefill = torch.compile(super().prefill, dynamic=False)  # type: ignore[method-assign]
        self.decode = torch.compile(super().decode, dynamic=False)  # type: ignore[method-assign]


class Fused(Model):
    """With this project's kernels: five a layer at one token; merged products and fused seams in the prefill."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights)
        layers = range(self.config.layers)
        self.qkv = [torch.cat([weights[f"{layer}.{name}"] for name in "qkv"]) for layer in layers]
        self.gate_up = [torch.cat([weights[f"{layer}.gate"], weights[f"{layer}.up"]]) for layer in layers]

    def read_prompt(self) -> torch.Tensor:
        """See :meth:`Model.read_prompt`."""
        config, weights, mark, eps = self.config, self.weights, self.mark, self.config.eps
        x = functional.embedding(self.tokens[: self.prompt], weights["embedding"])
        with mark("norm"):
            normed = functional.rms_norm(x, x.shape[1:], weights["0.attention_norm"], eps)
        for layer in range(config.layers):
            with mark(f"layer{layer}"):
                with mark("qkv"):
                    qkv = functional.linear(normed, self.qkv[layer])
                with mark("attention"):
                    keys, values = self.keys[layer], self.values[layer]
                    q = kernels.rotate_and_cache(qkv, self.cos, self.sin, keys, values, config.heads)
                    attended = functional.scaled_dot_product_attention(
                        q[None], keys[None, :, : self.prompt], values[None, :, : self.prompt],
                        is_causal=True, enable_gqa=config.heads != config.kv_heads,
                    )  # fmt: skip
                    attended = attended[0].transpose(0, 1).reshape(self.prompt, -1)
                with mark("o_proj"):
                    attended = functional.linear(attended, weights[f"{layer}.o"])
                with mark("residual_rmsnorm"):
                    normed, x = add_rmsnorm(attended, x, weights[f"{layer}.mlp_norm"], eps)
                with mark("swiglu_ffn"):
                    with mark("gate_up_silu"):
                        gate, up = self.gate_up[layer].chunk(2)
                        if self.prompt <= FUSED_GATE_UP_TOKENS:
                            activated = swiglu_ffn.gate_up_silu(normed, gate, up)
                        else:
                            activated = swiglu_ffn.silu_and_mul(functional.linear(normed, self.gate_up[layer]))
                    with mark("down"):
                        fed = functional.linear(activated, weights[f"{layer}.down"])
                with mark("residual_rmsnorm"):
                    last = layer + 1 == config.layers
                    scale = weights["norm" if last else f"{layer + 1}.attention_norm"]
                    normed, x = add_rmsnorm(fed, x, scale, eps)
        return normed

    def decode(self) -> None:
        """See :meth:`Request.decode`."""
        config, weights, mark, eps = self.config, self.weights, self.mark, self.config.eps
        x = self._take()
        for layer in range(config.layers):
            with mark(f"layer{layer}"):
                with mark("qkv"):
                    qkv = kernels.norm_linear(x, weights[f"{layer}.attention_norm"], self.qkv[layer], eps)
                with mark("attention"):
                    keys, values = self.keys[layer], self.values[layer]
                    attended = kernels.attend(qkv, self.cos, self.sin, keys, values, self.position, config.heads)
                with mark("o_proj"):
                    x = kernels.linear_add(attended, weights[f"{layer}.o"], x)
                with mark("swiglu_ffn"):
                    with mark("gate_up_silu"):
                        activated = kernels.norm_gate_up(x, weights[f"{layer}.mlp_norm"], self.gate_up[layer], eps)
                    with mark("down"):
                        x = kernels.linear_add(activated, weights[f"{layer}.down"], x)
        with mark("head"):
            self._give(kernels.norm_linear(x, weights["norm"], weights["head"], eps))


def reference(weights: Weights) -> torch.Tensor:
    """The logits of a request in float64, ``[N, vocabulary]``, in one causal pass over all its tokens."""
    wide = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
    everything = Weights(wide, weights.config, len(weights["tokens"]))
    rows = Unannotated(everything).read_prompt()[weights.prompt - 1 : -1]
    return functional.linear(rows, everything["head"])
