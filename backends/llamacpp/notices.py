"""What the person should know about this model under these settings, one sentence each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from backends.llamacpp.plan import ContextPlan
from backends.requests import CachePolicy, LoadRequest


@dataclass(frozen=True)
class Facts:
    """What a model turned out to be once llama.cpp had loaded it.

    Attributes:
        architecture: as the file names it.
        sliding_window: as llama.cpp applies it; 0 if it slides no layer.
        trained_window: as the file states it; None if it does not.
        num_full_layers: that llama.cpp runs with full attention.
        trained_context: in tokens; 0 if the file does not say.
        can_shift: whether the oldest tokens can be dropped when the context is full.
        has_chat_template: the model's own or one given by hand.
        on_gpu: where it runs.
    """

    architecture: str
    sliding_window: int
    trained_window: int | None
    num_full_layers: int
    trained_context: int
    can_shift: bool
    has_chat_template: bool
    on_gpu: bool


def notices(facts: Facts, request: LoadRequest, plan: ContextPlan, sinks: int) -> tuple[str, ...]:
    """Return the sentences, the most important first."""
    return (
        *_about_attention(facts, request, plan, sinks),
        *_about_the_end_of_the_context(facts, request, plan),
        *_about_settings(facts, request),
    )


def _about_attention(facts: Facts, request: LoadRequest, plan: ContextPlan, sinks: int) -> Iterator[str]:
    if not facts.sliding_window and facts.trained_window:
        yield (
            f"llama.cpp does not apply the sliding window of {facts.trained_window:,} tokens that this "
            f"{facts.architecture} model was trained with."
        )
    elif not facts.sliding_window:
        yield f"No layer slides: llama.cpp runs {facts.architecture} models with full attention."
    if request.policy is CachePolicy.RING and facts.num_full_layers:
        least = plan.num_cells - plan.discard_tokens(sinks)
        yield (
            f"Layers trained with full attention ({facts.num_full_layers}) see only the first {sinks:,} tokens and the "
            f"latest, {least:,} to {plan.num_cells:,} together: an approximation that keeps memory flat."
        )
    if request.window < facts.sliding_window:
        yield (
            f"The window of {request.window:,} is below the {facts.sliding_window:,} tokens the sliding layers were "
            f"trained with; llama.cpp keeps {facts.sliding_window:,}."
        )
    elif 0 < facts.sliding_window < request.window:
        yield f"Sliding layers keep the window of {facts.sliding_window:,} tokens that they were trained with."


def _about_the_end_of_the_context(facts: Facts, request: LoadRequest, plan: ContextPlan) -> Iterator[str]:
    if not facts.can_shift:
        yield f"This kind of model cannot drop its oldest tokens: a chat ends after {plan.num_cells:,} tokens."
    elif request.policy is not CachePolicy.RING:
        yield (
            f"llama.cpp sets the whole cache aside at start: after {plan.num_cells:,} tokens the oldest are dropped, "
            "and memory stops growing."
        )
    if 0 < facts.trained_context < plan.num_cells:
        yield (
            f"The model was trained for {facts.trained_context:,} tokens; beyond them, in a context of "
            f"{plan.num_cells:,}, its text gets worse."
        )


def _about_settings(facts: Facts, request: LoadRequest) -> Iterator[str]:
    if not facts.has_chat_template:
        yield (
            "The file holds no chat template: the model continues the text instead of answering, and control tokens "
            "spelled in it count as such."
        )
    if request.precision != "auto":
        yield f"llama.cpp runs the weights as the file stores them; the precision {request.precision} is ignored."
    if request.device == "cuda" and not facts.on_gpu:
        yield "This build of llama.cpp has no GPU support: it runs on the CPU."
