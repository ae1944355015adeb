"""The files of one model, checked: a GGUF file (or its shards), or a Hugging Face folder with safetensors.

Opening reads headers only, so it is cheap at any size; it needs neither torch nor the weights. Everything that can be
wrong with the files is found here, once, with one sentence that names the file and the way out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from backends.errors import ModelFileError
from models.config import ModelConfig
from models.ggml_types import FILE_TYPES
from models.gguf_config import parse_gguf_config
from models.gguf_reader import GgufFile, fingerprint, read_gguf
from models.hf_config import parse_hf_config
from models.links import refuse_dangling
from models.safetensors_header import TensorEntry, read_folder, weight_files

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")


@dataclass(frozen=True)
class WeightSizes:
    """What the weights weigh in the files.

    Attributes:
        num_bytes: as stored.
        num_elements: numbers stored; 4-bit formats that pack two to a byte are counted unpacked.
        encodings: element type -> bytes stored in it.
        lookup_elements: numbers of the embedding, where the head is another tensor.
    """

    num_bytes: int
    num_elements: int
    encodings: dict[str, int]
    lookup_elements: int = 0


def _weigh(tensors: Iterable[tuple[str, str, int, int]]) -> WeightSizes:
    """Add up (name, encoding, bytes, elements)."""
    num_elements = embedding_elements = 0
    encodings: dict[str, int] = {}
    has_head = False
    for name, encoding, num_bytes, elements in tensors:
        encodings[encoding] = encodings.get(encoding, 0) + num_bytes
        num_elements += elements
        embedding_elements += elements if name.endswith(("embed_tokens.weight", "token_embd.weight")) else 0
        has_head = has_head or name.endswith("lm_head.weight") or name == "output.weight"
    lookup_elements = embedding_elements if has_head else 0
    return WeightSizes(sum(encodings.values()), num_elements, encodings, lookup_elements)


@dataclass(frozen=True)
class ModelFiles:
    """An opened model.

    Attributes:
        kind: "gguf" or "folder".
        path: the (first) GGUF file, or the folder.
        files: every file that holds weights.
        gguf: the open GGUF file; None for a folder.
        weights: see `WeightSizes`.
    """

    kind: Literal["gguf", "folder"]
    path: Path
    files: tuple[Path, ...]
    gguf: GgufFile | None
    weights: WeightSizes

    @classmethod
    def open(cls, path: str | Path) -> ModelFiles:
        """Open a GGUF file, a folder with one GGUF file, or a Hugging Face folder.

        Raises:
            ModelFileError: something is missing, truncated, a git-lfs pointer, or not a model.
        """
        location = Path(path).expanduser()
        if location.suffix == ".safetensors" and (location.parent / "config.json").is_file():
            location = location.parent
        if location.is_dir():
            return _open_folder(_snapshot(location) if _is_hub_repo(location) else location)
        refuse_dangling([location])
        if not location.exists():
            raise ModelFileError(f"There is no file or folder {location}.", "Check the path.")
        return _open_gguf(location)

    @property
    def name(self) -> str:
        """Of the file or folder; of a folder in the Hugging Face cache, the model's id."""
        parts = self.path.absolute().parts
        if self.kind == "folder" and len(parts) > 2 and parts[-2] == "snapshots" and parts[-3].startswith("models--"):
            return parts[-3].removeprefix("models--").replace("--", "/")
        return self.path.name

    @property
    def size_bytes(self) -> int:
        """Of the weight files on disk."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def stored_as(self) -> str:
        """The weights' precision in the file's own words ("Q4_K_M", "BF16")."""
        if self.gguf is not None:
            file_type = self.gguf.metadata.get("general.file_type")
            if file_type in FILE_TYPES:
                return FILE_TYPES[file_type]
        return max(self.weights.encodings, key=lambda encoding: self.weights.encodings[encoding], default="")

    def config(self) -> ModelConfig:
        """Return the decoder's features.

        Raises:
            UnsupportedModelError: the architecture or one of its settings is one the ring backend cannot run.
            ModelFileError: a value is missing or wrong.
        """
        if self.gguf is not None:
            return parse_gguf_config(self.gguf)
        config = parse_hf_config(self.json("config.json") or {}, str(self.path / "config.json"))
        return replace(config, eos_token_ids=_all_eos(config, self.json("generation_config.json")))

    def json(self, name: str) -> dict[str, Any] | None:
        """Return a JSON file of the folder, parsed; None where there is no such file (or this is a GGUF file).

        Raises:
            ModelFileError: the file is not a JSON object.
        """
        file = self.path / name
        if self.kind != "folder" or not file.is_file():
            return None
        try:
            value = json.loads(file.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ModelFileError(f"{file} is not readable JSON: {error}.", "Download it again.") from error
        if not isinstance(value, dict):
            raise ModelFileError(f"{file} holds no JSON object.", "Download it again.")
        return value

    def fingerprint(self) -> str:
        """Return 32 hex digits that change when a weight file changes; see `gguf_reader.fingerprint`."""
        return fingerprint(*self.files)


def _open_gguf(path: Path) -> ModelFiles:
    gguf = read_gguf(path)
    if not gguf.tensors:
        raise ModelFileError(f"{path} holds no weights, only a vocabulary or settings.", "Choose the model's own file.")
    tensors = gguf.tensors.values()
    sizes = _weigh((tensor.name, tensor.ggml_type, tensor.num_bytes, tensor.num_elements) for tensor in tensors)
    return ModelFiles("gguf", gguf.path, gguf.paths, gguf, sizes)


def repo_snapshots(repo_folder: Path) -> list[Path]:
    """Return the cached states of one hub repository, the one its main branch last pointed to first."""
    snapshots = [path for path in (repo_folder / "snapshots").glob("*") if path.is_dir()]
    main = repo_folder / "refs" / "main"
    current = main.read_text(encoding="utf-8").strip() if main.is_file() else ""
    return sorted(snapshots, key=lambda path: (path.name == current, path.stat().st_mtime), reverse=True)


def _is_hub_repo(folder: Path) -> bool:
    """Whether a folder is a repository's in the hub's cache: its files lie in snapshots below it."""
    return folder.name.startswith("models--") and not (folder / "config.json").exists()


def _snapshot(repo_folder: Path) -> Path:
    snapshots = repo_snapshots(repo_folder)
    if not snapshots:
        raise ModelFileError(f"{repo_folder} holds no finished download (snapshots).", "Download the model again.")
    return snapshots[0]


def _open_folder(folder: Path) -> ModelFiles:
    refuse_dangling([folder / "config.json"])
    if not (folder / "config.json").is_file():
        return _open_gguf(_only_gguf(folder))
    files = weight_files(folder)
    refuse_dangling(folder / name for name in _TOKENIZER_FILES)
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise ModelFileError(f"{folder} has no tokenizer ({_TOKENIZER_FILES[0]}).", "Download the model again.")
    return ModelFiles("folder", folder, tuple(files), None, _folder_sizes(folder, files))


def _only_gguf(folder: Path) -> Path:
    """Return the one model among the folder's GGUF files, the first shard of a split one.

    Raises:
        ModelFileError: there is none, or a choice.
    """
    files = [file for file in sorted(folder.glob("*.gguf")) if not file.name.startswith("mmproj")]
    refuse_dangling(files)
    models = [file for file in files if "-of-" not in file.name or "-00001-of-" in file.name]
    if len(models) == 1:
        return models[0]
    if models:
        raise ModelFileError(f"{folder} holds {len(models)} models.", f"Name one of them, such as {models[0].name}.")
    raise ModelFileError(
        f"{folder} is not a model folder: it has neither config.json nor a GGUF file.", "Check the path."
    )


def _folder_sizes(folder: Path, files: list[Path]) -> WeightSizes:
    found = read_folder(folder, files)
    return _weigh(_sized(name, entry) for entries in found.values() for name, entry in entries.items())


def _sized(name: str, entry: TensorEntry) -> tuple[str, str, int, int]:
    if entry.encoding == "U8" and name.endswith("_blocks"):  # see `models.mxfp4`: two numbers to a byte
        return name, "MXFP4", entry.num_bytes, entry.num_elements * 2
    if entry.encoding == "U8" and name.endswith("_scales"):
        return name, "MXFP4", entry.num_bytes, 0
    return name, entry.encoding, entry.num_bytes, entry.num_elements


def _all_eos(config: ModelConfig, generation: dict[str, Any] | None) -> tuple[int, ...]:
    """Chat models often name the token that ends a turn only in `generation_config.json`."""
    value = (generation or {}).get("eos_token_id")
    more = value if isinstance(value, list) else [value]
    ids = (*config.eos_token_ids, *(token_id for token_id in more if isinstance(token_id, int)))
    return tuple(dict.fromkeys(ids))
