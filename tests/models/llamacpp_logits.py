"""Run as a program: llama.cpp's logits of tiny GGUF files, in a process of its own, since it aborts on bad files.

    python -m tests.models.llamacpp_logits tokens.npy out_folder model.gguf ...

Writes `<model>.npy`, float32 [tokens, vocabulary], for each. Keys and values stay float32 and nothing is fused, so that
only rounding order separates the result from an exact one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import llama_cpp
import numpy as np
import numpy.typing as npt

from backends.llamacpp.library import Model
from backends.llamacpp.overrides import find_overrides
from models.gguf_config import parse_gguf_config
from models.gguf_reader import read_gguf

_GGML_F32 = 0


def logits_of(path: Path, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    """Feed all tokens in one batch, with what our backend tells llama.cpp about the file."""
    gguf = read_gguf(path)
    overrides = find_overrides(gguf, parse_gguf_config(gguf))
    model = Model(path, False, lambda part: None, overrides).pointer
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = 1
    params.type_k = params.type_v = _GGML_F32
    params.flash_attn_type = 0
    params.swa_full = True
    if overrides.yarn_beta_fast is not None and overrides.yarn_beta_slow is not None:
        params.yarn_beta_fast, params.yarn_beta_slow = overrides.yarn_beta_fast, overrides.yarn_beta_slow
    context = llama_cpp.llama_init_from_model(model, params)
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for index, token in enumerate(tokens):
        batch.token[index] = int(token)
        batch.pos[index] = index
        batch.n_seq_id[index] = 1
        batch.seq_id[index][0] = 0
        batch.logits[index] = 1
    if llama_cpp.llama_decode(context, batch) != 0:
        raise SystemExit(f"llama.cpp does not decode {path}")
    num_rows = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    rows = [llama_cpp.llama_get_logits_ith(context, index) for index in range(len(tokens))]
    result = np.stack([np.ctypeslib.as_array(row, shape=(num_rows,)).copy() for row in rows])
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return result


def main() -> None:
    tokens_file, out_folder, *models = (Path(argument) for argument in sys.argv[1:])
    tokens = np.load(tokens_file)
    for model in models:
        np.save(out_folder / f"{model.stem}.npy", logits_of(model, tokens))


if __name__ == "__main__":
    main()
