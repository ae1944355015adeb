"""Which Hugging Face folders run through transformers, because our own decoder does not know their family.

Told from config.json and from the table of text models in transformers' source, which is parsed, not run: importing
transformers takes seconds and brings torch. The model itself is `models.stock_model`.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from models.hf_config import knows_family
from models.model_files import ModelFiles

INSTALL_COMMAND = "pip install -c constraints.txt 'transformers>=5.17,<6'"
_OLDEST = (5, 17)  # the first whose models take the cache as `cache` and mask by its sizes
_TABLE = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
_CAUSAL_ENDINGS = ("ForCausalLM", "LMHeadModel")
_ADVICE = "Ringside runs models that continue a text."


def runs_through_transformers(files: ModelFiles) -> bool:
    """Whether the ring backend takes this model to transformers, which may refuse it yet; see `why_not_compat`."""
    return files.kind == "folder" and not knows_family(files.json("config.json") or {})


def why_not_compat(files: ModelFiles) -> str | None:
    """Return in one sentence why transformers cannot run the model here; None if it can, as far as the files tell.

    Raises:
        ModelFileError: config.json is not readable.
    """
    config = files.json("config.json") or {}
    architecture = architecture_of(config)
    if config.get("is_encoder_decoder"):
        return f"{files.name}: {architecture} is an encoder-decoder. {_ADVICE}"
    quantisation = config.get("quantization_config")
    if isinstance(quantisation, Mapping):
        return f"{files.name}: weights quantised with {quantisation.get('quant_method')!r} cannot be read."
    if missing := _why_no_library(files.name, architecture):
        return missing
    return _why_not_causal(files.name, architecture, config)


def architecture_of(config: Mapping[str, Any]) -> str:
    """Return the model's class as config.json names it, else its type."""
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else str(config.get("model_type"))


def _why_no_library(name: str, architecture: str) -> str | None:
    installed = _installed_version()
    if installed is None:
        return f"{name}: {architecture} runs through transformers, which is not installed. Run: {INSTALL_COMMAND}"
    if tuple(int(part) for part in installed.split(".")[:2] if part.isdigit()) < _OLDEST:
        return f"{name}: {architecture} needs a newer transformers than {installed}. Run: {INSTALL_COMMAND}"
    return None


def _why_not_causal(name: str, architecture: str, config: Mapping[str, Any]) -> str | None:
    known, model_type = causal_models(), str(config.get("model_type"))
    if known is None:  # a transformers that keeps its table elsewhere: it will tell when the model is loaded
        return None
    if model_type not in known:
        if config.get("auto_map"):
            return f"{name}: {architecture} comes with code of its own, which Ringside does not run."
        return f"{name}: {architecture} (model_type {model_type!r}) is no text model that transformers knows. {_ADVICE}"
    if architecture != known[model_type] and not architecture.endswith(_CAUSAL_ENDINGS) and architecture != model_type:
        return f"{name}: {architecture} does not write text. {_ADVICE}"
    return None


def _installed_version() -> str | None:
    if importlib.util.find_spec("transformers") is None:
        return None
    return importlib.metadata.version("transformers")


@lru_cache(maxsize=1)
def causal_models() -> Mapping[str, str] | None:
    """Return model type -> class that continues text, as the installed transformers has them; None if not found."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        return None
    source = Path(spec.origin).parent / "models" / "auto" / "modeling_auto.py"
    try:
        tree = ast.parse(source.read_text("utf-8"))
        tables = [node for node in tree.body if isinstance(node, ast.Assign) and _is_named(node.targets[0], _TABLE)]
        entries = ast.literal_eval(tables[0].value.args[0])  # type: ignore[attr-defined]
        return {str(model_type): str(name) for model_type, name in entries if isinstance(name, str)}
    except (OSError, SyntaxError, ValueError, TypeError, AttributeError, IndexError):
        return None


def _is_named(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name
