"""Which backend can run a model, and what llama.cpp makes of its architecture. Imports no engine."""

from __future__ import annotations

from backends.errors import ModelFileError, UnsupportedModelError
from backends.requests import CachePolicy, LoadRequest
from models.compat_support import runs_through_transformers, why_not_compat
from models.config import ModelConfig
from models.model_files import ModelFiles

_PLAIN_ENCODINGS = frozenset({"F32", "F16", "BF16", "F64"})
_RING_FOLDER_ENCODINGS = _PLAIN_ENCODINGS | {"MXFP4"}
_RING_GGUF_ENCODINGS = frozenset(
    _PLAIN_ENCODINGS
    | {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"}
    | {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "TQ1_0", "TQ2_0", "IQ4_NL", "IQ4_XS"}
    | {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"}
)
_INTEGER_ENCODINGS = frozenset({"I8", "I16", "I32", "I64", "BOOL"})  # buffers beside the weights, never read

_SLIDING_IN_LLAMACPP = frozenset(
    {"gemma2", "gemma3", "gemma3n", "gemma4", "llama4", "gpt-oss", "cohere2", "cohere2moe", "olmo2", "exaone-moe"}
    | {"afmoe", "mellum", "laguna", "plamo3", "smallthinker", "muse-glimmer", "granite_swa", "maple", "mimo2"}
    | {"step35", "spark2_5", "dots3note", "deepseek4", "lfm2", "lfm2moe"}
)
"""Architectures with a window in llama.cpp 0c1e57098 (that of llama-cpp-python 0.3.36): its setters of `swa_type`."""
_EXAONE4_SLIDING_LAYERS = 64  # llama.cpp slides the 32B model only


def slides_in_llamacpp(architecture: str, num_layers: int) -> bool:
    """Whether llama.cpp honours the sliding window of an architecture; of "llama" (Mistral) and "phi3" it does not."""
    if architecture == "exaone4":
        return num_layers == _EXAONE4_SLIDING_LAYERS
    return architecture in _SLIDING_IN_LLAMACPP


def runnable_by(files: ModelFiles) -> dict[str, str | None]:
    """Return, for each backend that takes models, None if it can run this one, else the reason in one sentence.

    Whether a backend's library is installed is another matter: see `backends.registry`.
    """
    return {"ring": _why_not_ring(files), "llamacpp": _why_not_llamacpp(files)}


def config_for(files: ModelFiles, backend: str) -> ModelConfig | None:
    """Return the decoder's features; None where a backend runs the model without our knowing them.

    Raises:
        UnsupportedModelError: the ring backend cannot run the model.
        ModelFileError: a value of its config is missing or wrong.
    """
    if backend == "ring" and runs_through_transformers(files):
        if reason := why_not_compat(files):
            raise UnsupportedModelError(reason)
        return None
    try:
        return files.config()
    except (UnsupportedModelError, ModelFileError):
        if backend == "ring":
            raise
        return None


def _why_not_ring(files: ModelFiles) -> str | None:
    try:
        if runs_through_transformers(files):
            return why_not_compat(files)
        files.config()
    except (UnsupportedModelError, ModelFileError) as error:
        return error.message
    readable = _RING_GGUF_ENCODINGS if files.kind == "gguf" else _RING_FOLDER_ENCODINGS
    unreadable = sorted(set(files.weights.encodings) - readable - _INTEGER_ENCODINGS)
    if unreadable:
        return f"{files.name} stores weights as {', '.join(unreadable)}, which the ring backend cannot read."
    return None


def _why_not_llamacpp(files: ModelFiles) -> str | None:
    if files.gguf is None:
        return f"{files.name} is a safetensors folder; llama.cpp reads GGUF files only."
    kind = str(files.gguf.metadata.get("general.type", "model"))
    if kind != "model" or files.gguf.architecture == "clip":
        return f"{files.name} holds no language model (general.type is {kind!r})."
    return None


def window_in_force(config: ModelConfig, request: LoadRequest) -> int:
    """Return W of the bounded layers as the request's backend would run them.

    llama.cpp has no fewer cells than its sliding layers were trained with, nor more for these layers. The ring narrows
    them, and where no full layer is bounded too, a wider W changes nothing.

    Example: sliding layers (512) beside full ones, policy "ring", W = 256: 256 in the ring, 512 in llama.cpp.
    """
    trained, window = config.trained_window, request.window
    bounds_full_layers = request.policy is CachePolicy.RING and config.num_full_layers > 0
    if request.backend == "llamacpp":
        if trained is None or not slides_in_llamacpp(config.architecture, len(config.layers)):
            return window
        return max(window, trained) if bounds_full_layers else trained
    if request.policy is CachePolicy.FULL or bounds_full_layers or trained is None:
        return window
    return min(window, trained)
