"""From model files to a decoder with its weights, in memory that never much exceeds what the weights take when held.

Every weight is checked by name, shape and encoding before the first byte is read. Then rows are read, turned into
numbers and put in place a few megabytes at a time, on as many threads as the processor has cores.

`models.weight_names` says which tensor is which weight, `models.weight_source` which rows of it are read,
`models.stored_tensor` how bytes become numbers, `models.precision` how weights are held.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from backends.errors import ModelFileError
from models.config import ModelConfig
from models.decoder import Decoder
from models.file_embedding import FileEmbedding
from models.gguf_weights import gguf_tensors
from models.linear import ActivationCoder, Int8Linear, PackedRows, pack_rows, quantize_rows, quiet_packing
from models.model_files import ModelFiles
from models.precision import WeightPrecision
from models.safetensors_weights import safetensors_tensors
from models.stored_tensor import StoredTensor
from models.weight_names import Part, file_name, gguf_parts, hf_parts
from models.weight_source import Source, Span, one_by_one

_LAYER = re.compile(r"layers\.(\d+)\.")
_SPAN_ELEMENTS = 8 * 2**20  # that one thread takes on; an int8 weight stays in pieces of this size

ReportBytes = Callable[[int, int], None]
"""Called with the bytes read and the bytes there are, as stored."""


def load_decoder(
    files: ModelFiles,
    config: ModelConfig,
    precision: WeightPrecision,
    device: torch.device,
    num_threads: int = 1,
    report: ReportBytes = lambda done, total: None,
) -> tuple[Decoder, int]:
    """Build the decoder of a model and fill it.

    Returns:
        The decoder, without gradients, and the bytes its weights take in memory.

    Raises:
        ModelFileError: a weight is missing, of the wrong shape, or nobody knows what it is.
        UnsupportedModelError: a weight is stored in a way that cannot be read here.
    """
    sources = find_sources(files, config)
    with torch.device("meta"):
        linear = partial(Int8Linear, coder=ActivationCoder()) if precision.is_int8 else nn.Linear
        borrows_head = config.tied_embeddings and "head.weight" not in sources
        # An int8 head is packed for multiplying, so a tied one is a copy and the embedding stays in the file.
        decoder = Decoder(config, linear, own_head=precision.is_int8 or not borrows_head)
    if precision.is_int8 and borrows_head:
        sources["head.weight"] = [
            Source(source.tensor, Part("head.weight")) for source in sources.get("embed.weight", ())
        ]
    if precision.is_int8:
        sources = one_by_one(sources)
    filler = _Filler(decoder, sources, precision, device)
    filler.check(str(files.path))
    filler.fill(num_threads, report)
    decoder.requires_grad_(False).eval()
    return decoder, filler.num_bytes


def find_sources(files: ModelFiles, config: ModelConfig) -> dict[str, list[Source]]:
    """Return what the files hold for each parameter, by canonical name.

    Raises:
        ModelFileError: the files hold tensors that this architecture does not have.
    """
    if files.gguf is not None:
        tensors, architecture = gguf_tensors(files.gguf), files.gguf.architecture
        parts = {name: gguf_parts(name, config, architecture) for name in tensors}
    else:
        tensors = safetensors_tensors(files.files)
        parts = {name: hf_parts(name, config, tensors) for name in tensors}
    if unknown := [name for name, found in parts.items() if found is None]:
        raise ModelFileError(
            f"{tensors[unknown[0]].path} holds {_names(unknown)}, which {config.architecture} models do not have here.",
            "The file may be of another architecture than it says.",
        )
    sources: dict[str, list[Source]] = {}
    for name, found in parts.items():
        for part in found or ():
            sources.setdefault(part.parameter, []).append(Source(tensors[name], part))
    _drop_repeated_head(sources, config)
    return sources


def _drop_repeated_head(sources: dict[str, list[Source]], config: ModelConfig) -> None:
    """Forget a head that the file repeats although it is the embedding; one that differs is used, tied or not."""
    head, embed = sources.get("head.weight"), sources.get("embed.weight")
    if head and embed and config.tied_embeddings and _same_numbers(head[0].tensor, embed[0].tensor):
        del sources["head.weight"]


def _same_numbers(one: StoredTensor, other: StoredTensor) -> bool:
    if (one.shape, one.encoding) != (other.shape, other.encoding):
        return False
    return all(torch.equal(mine, others) for mine, others in zip(one.slices(), other.slices(), strict=True))


class _Filler:
    """Puts weights into a decoder that was built on the meta device."""

    def __init__(
        self, decoder: Decoder, sources: Mapping[str, list[Source]], precision: WeightPrecision, device: torch.device
    ) -> None:
        self.num_bytes = 0
        self._decoder = decoder
        self._sources = sources
        self._precision = precision
        self._device = device
        self._shapes = dict(_parameter_shapes(decoder))

    def check(self, where: str) -> None:
        """See `load_decoder` for what is raised. Reads nothing."""
        missing = [name for name in self._shapes if name not in self._sources and not self._may_be_absent(name)]
        if missing:
            own_names = list(dict.fromkeys(self._own_name(name) for name in missing))
            raise ModelFileError(f"{where} lacks {_names(own_names)}.", "It may be incomplete: download it again.")
        if surplus := [self._sources[name][0].tensor for name in self._sources if name not in self._shapes]:
            surplus_names = _names([tensor.name for tensor in surplus])
            raise ModelFileError(
                f"{surplus[0].path} holds {surplus_names}, which its settings say it does not have.",
                "Settings and weights may belong to different models: download both again.",
            )
        for name, expected in self._shapes.items():
            for source in self._sources.get(name, ()):
                source.tensor.check_readable()
                wanted = expected if source.part.expert is None else expected[1:]
                if source.shape != wanted:
                    raise ModelFileError(
                        f"{source.tensor.path} stores {source.tensor.name} in shape {source.tensor.shape}; "
                        f"its settings ask for {wanted}.",
                        "Settings and weights may belong to different models: download both again.",
                    )

    def _own_name(self, parameter: str) -> str:
        """Return what a missing parameter's tensor would be called in these files."""
        index = _LAYER.match(parameter)
        rest = parameter[index.end() :] if index else parameter
        for other, sources in self._sources.items():
            if index and (match := _LAYER.match(other)) and other[match.end() :] == rest:
                return sources[0].tensor.name.replace(f".{match[1]}.", f".{index[1]}.", 1)
        any_tensor = next(iter(self._sources.values()))[0].tensor
        return file_name(parameter, is_gguf=any_tensor.path.suffix == ".gguf") or parameter

    def fill(self, num_threads: int, report: ReportBytes) -> None:
        """Read everything."""
        tasks = [task for name, sources in self._sources.items() for task in self._prepare(name, sources)]
        total = sum(task.num_bytes for task in tasks)
        packed: dict[str, list[PackedRows]] = {}
        done = 0
        with ThreadPoolExecutor(max(1, num_threads)) as pool, quiet_packing():
            for task, result in zip(tasks, pool.map(_Task.run, tasks), strict=True):
                if result is not None:
                    packed.setdefault(task.name, []).append(result)
                done += task.num_bytes
                report(done, total)
        for name, parts in packed.items():
            self._module_of(name).set_weight(parts)  # type: ignore[operator]
            self.num_bytes += sum(part.nbytes for part in parts)
        self._fill_absent()

    def _prepare(self, name: str, sources: list[Source]) -> Iterator[_Task]:
        """Make room for a parameter, and the tasks that fill it."""
        module = self._module_of(name)
        if self._precision.is_int8 and module is self._decoder.embed:
            self._decoder.embed = FileEmbedding(sources[0].tensor)  # type: ignore[assignment]
        elif isinstance(module, Int8Linear) and name.endswith(".weight"):
            yield from _tasks(name, sources[0], None)
        else:
            values = self._allocate(name)
            for source in sources:
                yield from _tasks(name, source, values if source.part.expert is None else values[source.part.expert])

    def _allocate(self, name: str) -> Tensor:
        """Give a parameter its memory, zeros at first."""
        module, leaf = self._module_of(name), name.rpartition(".")[2]
        values = torch.zeros(self._shapes[name], dtype=self._precision.dtype, device=self._device)
        self.num_bytes += values.nbytes
        if isinstance(module, Int8Linear):
            module.set_bias(values)
        else:
            setattr(module, leaf, nn.Parameter(values, requires_grad=False))
        return values

    def _fill_absent(self) -> None:
        for name in self._shapes:
            if name not in self._sources:
                self._allocate(name)

    def _module_of(self, name: str) -> nn.Module:
        return self._decoder.get_submodule(name.rpartition(".")[0])

    def _may_be_absent(self, name: str) -> bool:
        """Whether a bias may be missing: some models have it for some of queries, keys and values only."""
        layer, _, rest = name.partition(".attn.")
        siblings = {f"{letter}.bias" for letter in "qkv"}
        return rest in siblings and any(f"{layer}.attn.{sibling}" in self._sources for sibling in siblings)


@dataclass(frozen=True)
class _Task:
    """Some rows on their way from a file to where they are held.

    Attributes:
        name: of the parameter.
        span: indices of the source's first dimension; None is all of it.
        target: filled by the task; None for int8 weights, which it returns.
    """

    name: str
    source: Source
    span: Span | None
    target: Tensor | None

    @property
    def num_bytes(self) -> int:
        """To read."""
        if self.span is None:
            return self.source.tensor.num_bytes
        start, stop = self.span
        return self.source.tensor.num_bytes * (stop - start) // self.source.tensor.shape[0]

    def run(self) -> PackedRows | None:
        """Do it; on any thread."""
        if self.target is None:
            return self._pack()
        if self.span is None:
            self.target.copy_(self.source.whole())
            return None
        start, stop = self.span
        if self.source.part.is_stack:
            self.target[start:stop].copy_(self.source.experts(self.span))
            return None
        for rows in self.source.slices(self.span):
            self.target.view(-1, rows.shape[-1])[start : start + len(rows)] = rows
            start += len(rows)
        return None

    def _pack(self) -> PackedRows:
        """Quantise slice by slice: the numbers between file and int8 never leave the processor's cache."""
        if self.span is None:
            return pack_rows(*quantize_rows(self.source.whole().float()))
        num_rows, done = self.span[1] - self.span[0], 0
        rows_OI = torch.empty(num_rows, self.source.shape[1], dtype=torch.int8)
        scales_O = torch.empty(num_rows)
        for rows in self.source.slices(self.span):
            here = slice(done, done + len(rows))
            rows_OI[here], scales_O[here] = quantize_rows(rows.float())
            done += len(rows)
        return pack_rows(rows_OI, scales_O)


def _tasks(name: str, source: Source, target: Tensor | None) -> Iterator[_Task]:
    """Cut a source into pieces that are read at a time, where it can be cut."""
    if not source.is_plain and not source.part.is_stack:
        yield _Task(name, source, None, target)
        return
    step = max(1, _SPAN_ELEMENTS // math.prod(source.shape[1:]))
    for start in range(0, source.shape[0], step):
        yield _Task(name, source, (start, min(start + step, source.shape[0])), target)


def _parameter_shapes(decoder: Decoder) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every weight the decoder wants, by canonical name, int8 layers' included."""
    for module_name, module in decoder.named_modules():
        if isinstance(module, Int8Linear):
            yield f"{module_name}.weight", (module.out_features, module.in_features)
            if module.has_bias:
                yield f"{module_name}.bias", (module.out_features,)
        for leaf, parameter in module.named_parameters(recurse=False):
            yield f"{module_name}.{leaf}", tuple(parameter.shape)


def _names(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
