"""SmolLM2 on real text: what it answers, and how far each variant's predictions lie from float32's."""

from __future__ import annotations

import math
import pydoc_data.topics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch.nn import functional

from workloads.models.llama import Compiled, Eager, Fused, Model, Unannotated, Weights
from workloads.models.loading import CONFIGS, tokenizer, weights_of

PROMPT: Final = "The capital of France is"

MODELS: Final[dict[str, Callable[[Weights], Model]]] = {"eager": Eager, "fused": Fused}
"""The ways to compute that are judged on text."""

KL_RATIO, PERPLEXITY_CHANGE, TOP1_DROP = 1.25, 0.002, 0.005
"""What the gate allows a variant: its divergence from float32 over the baseline's own, how much further than the
baseline its perplexity may lie from float32's, and its loss of agreement on the first choice. Thresholds of this
project: accuracy hides flips of the first choice and divergence tracks them (arXiv 2407.09141)."""

ROUNDING_KL: Final = 1e-8
"""Divergence that the order of float32 sums makes (nats): less than that is none, and nothing to be compared with."""

ANSWERING: Final[dict[str, Callable[[Weights], Model]]] = {**MODELS, "compiled": Compiled}
"""Every way to compute, for :func:`complete`."""


def complete(
    prompt: str,
    make: Callable[[Weights], Model] | str,
    dtype: str,
    device: str,
    new_tokens: int = 8,
    *,
    graph: bool = False,
) -> str:
    """SmolLM2's greedy continuation of a prompt by a model or the variant of that name, under ``graph`` replayed.

    Each token is the choice that the step before it wrote on the device; the host reads them at the end.
    """
    make = ANSWERING[make] if isinstance(make, str) else make
    ids = tokenizer()(prompt)["input_ids"]
    tokens = torch.tensor(ids + [0] * new_tokens, device=device)
    model = make(_weights(tokens, len(ids), dtype, device))
    with torch.inference_mode():
        prefill, decode = model.captured() if graph else (model.prefill, model.decode)
        model.start()
        prefill()
        for at in range(len(ids), len(tokens)):
            model.tokens[at] = model.chosen[at - 1]
            if at + 1 < len(tokens):
                decode()
    return str(tokenizer().decode(tokens[len(ids) :].tolist()))


def windows(count: int, length: int) -> torch.Tensor:
    """Real text as tokens ``[count, length]``: the first of Python's own language reference, in order of its topics."""
    text = "\n\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    ids = tokenizer()(text[: 8 * count * length + 1000])["input_ids"]
    return torch.tensor(ids[: count * length]).reshape(count, length)


@dataclass(frozen=True)
class Distance:
    """A variant on real text against eager float32: divergences in nats, agreement and perplexity.

    ``path`` is ``prefill``, where all tokens of a window are computed at once, or ``decode``, one by one.
    """

    variant: str
    dtype: str
    path: str
    tokens: int
    mean_kl: float
    p99_kl: float
    top1_agreement: float
    perplexity: float
    reference_perplexity: float

    @property
    def off(self) -> float:
        """The relative distance of its perplexity from float32's, whatever its sign."""
        return abs(self.perplexity / self.reference_perplexity - 1)


def distances(
    variants: Sequence[str], dtype: str, *, device: str, count: int = 4, length: int = 1024, path: str = "prefill"
) -> list[Distance]:
    """How far each variant lies from eager float32 on windows of real text."""
    divergences: dict[str, list[torch.Tensor]] = {name: [] for name in variants}
    agreements: dict[str, list[torch.Tensor]] = {name: [] for name in variants}
    losses: dict[str, list[torch.Tensor]] = {name: [] for name in ["reference", *variants]}
    with torch.inference_mode():
        for window in windows(count, length).to(device):
            truth = window[1:]
            expected = functional.log_softmax(
                _logits(Unannotated, window, "float32", device, "prefill").double(), dim=-1
            )
            losses["reference"].append(-expected.gather(1, truth[:, None])[:, 0])
            for name in variants:
                found = functional.log_softmax(_logits(MODELS[name], window, dtype, device, path).double(), dim=-1)
                divergences[name].append((expected.exp() * (expected - found)).sum(-1))
                agreements[name].append(expected.argmax(-1) == found.argmax(-1))
                losses[name].append(-found.gather(1, truth[:, None])[:, 0])
    reference = math.exp(float(torch.cat(losses["reference"]).mean()))
    out = []
    for name in variants:
        kl = torch.cat(divergences[name])
        out.append(
            Distance(
                name, dtype, path, len(kl), float(kl.mean()), float(torch.quantile(kl, 0.99)),
                float(torch.cat(agreements[name]).double().mean()),
                math.exp(float(torch.cat(losses[name]).mean())), reference,
            )
        )  # fmt: skip
    return out


def gate(found: Sequence[Distance], baseline: str = "eager") -> list[tuple[str, float, float]]:
    """(check, error, tolerance) of every variant against the baseline's own distance to float32."""
    base = {(distance.dtype, distance.path): distance for distance in found if distance.variant == baseline}
    checks = []
    for own in found:
        if own.variant == baseline:
            continue
        theirs = base[own.dtype, own.path]
        name = f"SmolLM2 {own.variant} {own.dtype} {own.path}"
        checks += [
            (
                f"{name}: mean KL to float32 over the baseline's",
                own.mean_kl / max(theirs.mean_kl, ROUNDING_KL),
                KL_RATIO,
            ),
            (
                f"{name}: distance from float32's perplexity, beyond the baseline's",
                own.off - theirs.off,
                PERPLEXITY_CHANGE,
            ),
            (f"{name}: loss of first choices", theirs.top1_agreement - own.top1_agreement, TOP1_DROP),
        ]
    return checks


def rows(found: Sequence[Distance], baseline: str = "eager") -> list[dict[str, str | float | bool | None]]:
    """The checks of :func:`gate` as rows of tracekit's table quality; an error that is no number is null and fails."""
    return [
        {
            "check": check,
            "reference": baseline,
            "error": error if math.isfinite(error) else None,
            "tolerance": tolerance,
            "passed": error <= tolerance,
        }
        for check, error, tolerance in gate(found, baseline)
    ]


def _logits(make: Callable[[Weights], Model], window: torch.Tensor, dtype: str, device: str, path: str) -> torch.Tensor:
    """Predictions ``[L - 1, vocabulary]`` of all tokens of a window but the first."""
    if path == "decode":
        result = make(_weights(window, 1, dtype, device)).request()
        assert isinstance(result, torch.Tensor)
        return result
    weights = _weights(window, len(window), dtype, device)
    return functional.linear(make(weights).read_prompt()[:-1], weights["head"])


def _weights(tokens: torch.Tensor, prompt: int, dtype: str, device: str) -> Weights:
    return weights_of("smollm2", CONFIGS["smollm2"].layers, tokens, prompt, getattr(torch, dtype), device, 0)
