"""Model folders and hub caches as they lie on people's disks: shards, links, strays, halves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

CONFIG = {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 97,
    "sliding_window": 8,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "max_position_embeddings": 64,
}


def write_model(folder: Path, num_shards: int = 1, config: dict[str, object] | None = None) -> Path:
    """Write a folder that passes for a Mistral: config, tokenizer, and weights in so many shards."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG if config is None else config))
    (folder / "tokenizer.json").write_text("{}")
    names = [f"model-{number:05}-of-{num_shards:05}.safetensors" for number in range(1, num_shards + 1)]
    for number, name in enumerate(names):
        weights = {f"weight.{number}": np.zeros((4, 4), np.float32)}
        save_file(weights, folder / (name if num_shards > 1 else "model.safetensors"))
    if num_shards > 1:
        weight_map = {f"weight.{number}": name for number, name in enumerate(names)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def cache_as_hub_does(cache: Path, repo: str, model: Path, commit: str = "0" * 40, is_main: bool = True) -> Path:
    """Move a folder's files into a hub cache: contents under blobs, links under snapshots."""
    home = cache / f"models--{repo.replace('/', '--')}"
    snapshot = home / "snapshots" / commit
    (home / "blobs").mkdir(parents=True, exist_ok=True)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(model.iterdir())):
        blob = home / "blobs" / f"{commit[:4]}{number}"
        path.rename(blob)
        (snapshot / path.name).symlink_to(Path("../../blobs") / blob.name)
    if is_main:
        (home / "refs").mkdir(exist_ok=True)
        (home / "refs" / "main").write_text(commit)
    return snapshot
