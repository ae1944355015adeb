"""What a person should know before loading a model with these settings, one plain sentence each."""

from __future__ import annotations

from collections.abc import Iterator

from backends.requests import CachePolicy, LoadRequest
from models.backend_support import slides_in_llamacpp, window_in_force
from models.config import ModelConfig


def warnings_for(
    config: ModelConfig | None,
    request: LoadRequest,
    needed_bytes: int,
    too_small_bytes: int | None,
    has_chat_template: bool,
) -> tuple[str, ...]:
    """Return the sentences, the most important first.

    Args:
        config: None for an architecture that only llama.cpp or transformers knows.
        request: the settings.
        needed_bytes: weights and cache together.
        too_small_bytes: the free memory where it does not suffice; None where it does or is unknown.
        has_chat_template: the model's own or one given by hand.
    """
    sentences: list[str] = []
    if too_small_bytes is not None:
        sentences.append(
            f"It does not fit: about {_gigabytes(needed_bytes)} are needed and {_gigabytes(too_small_bytes)} are free."
        )
    if config is None and request.backend == "ring":
        sentences.append(
            "It runs through transformers, not in Ringside's own decoder: slower, and layers that were trained with "
            "full attention keep everything."
        )
    if config is not None:
        sentences.extend(_about_attention(config, request))
        sentences.extend(_about_the_window(config, request))
    sentences.extend(_about_keys_and_values(request))
    if not has_chat_template:
        sentences.append(
            "This model has no chat template: it continues your text instead of answering it, and control tokens "
            "spelled in it count as such."
        )
    return tuple(sentences)


def _about_attention(config: ModelConfig, request: LoadRequest) -> Iterator[str]:
    sliding, full = config.num_sliding_layers, config.num_full_layers
    if request.backend == "llamacpp" and sliding and not slides_in_llamacpp(config.architecture, len(config.layers)):
        yield (
            f"llama.cpp does not slide {config.architecture} models: it runs all {len(config.layers)} layers with full "
            f"attention, although this one was trained with a window of {config.trained_window:,}."
        )
    if request.policy is not CachePolicy.RING or not full:
        return
    sinks, window = 4 if request.sinks is None else request.sinks, window_in_force(config, request)
    if sliding:
        which = f"{full} of {full + sliding} layers were"
    else:
        which = "This is not a sliding-window model: all its layers were"
    yield (
        f"{which} trained with full attention; bounded to the first {sinks:,} and the last {window:,} tokens "
        "they are an approximation."
    )
    if sinks == 0:
        yield "Without sinks, text gets much worse once the first token has left the window; 4 are enough."


def _about_the_window(config: ModelConfig, request: LoadRequest) -> Iterator[str]:
    trained, window = config.trained_window, request.window
    if request.policy is not CachePolicy.FULL and trained is not None and window != trained:
        limit = f"the {trained:,} tokens the sliding layers were trained with"
        if window > trained:
            gain = "only the full layers see more" if config.num_full_layers else "a wider one changes nothing"
            yield f"The window of {window:,} exceeds {limit}: {gain}."
        elif request.backend == "llamacpp":
            yield f"The window of {window:,} is below {limit}; llama.cpp keeps {trained:,}."
        elif (sinks := 4 if request.sinks is None else request.sinks) + window < trained:
            yield f"The window of {window:,} is below {limit}, so the model remembers less than it could."
            if sinks == 0:
                yield "Layers cut that far need sinks as well; 4 are enough."
    context = config.context_tokens
    if request.policy is CachePolicy.RING and config.num_full_layers and context is not None and window > context:
        yield f"The window of {window:,} exceeds the {context:,} tokens the model was trained for: text gets worse."


def _about_keys_and_values(request: LoadRequest) -> Iterator[str]:
    if request.kv_type == "auto" or request.backend == "echo":
        return
    if request.backend == "llamacpp" and request.kv_type == "fp8":
        yield "llama.cpp has no fp8 for keys and values; choose int8 or auto."
    else:
        yield f"Keys and values are rounded to {request.kv_type}: a smaller cache, a slightly different text."


def _gigabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:.0f} MB"
