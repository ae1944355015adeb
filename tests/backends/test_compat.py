"""Folders of families our decoder does not know: transformers' own model on our cache, or a refusal by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from backends import registry
from backends.errors import BadRequestError, ModelFileError, UnsupportedModelError
from backends.events import Event, TextChunk
from backends.requests import CachePolicy, GenerationRequest, LoadRequest, Message, Sampling
from models import compat_support
from models.backend_support import config_for, runnable_by
from models.catalog import describe
from models.model_files import ModelFiles
from tests.models.family_checks import compat_error
from tests.models.stock_folders import STOCK_FAMILIES, WINDOW, save_stock_folder, stock_model
from tests.models.tiny_models import pieces
from tests.models.tiny_tokenizers import byte_level_vocabulary

RING, AS_TRAINED, FULL = CachePolicy.RING, CachePolicy.AS_TRAINED, CachePolicy.FULL
TEXT = "the quick brown fox jumps over the lazy dog. "


@pytest.mark.parametrize("family", STOCK_FAMILIES)
def test_logits_are_those_of_the_model_without_a_cache_past_four_wraps(family: str) -> None:
    assert compat_error(family) < 3e-4


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stock")
    for family in ("cwm", "phimoe", "gpt2"):
        save_stock_folder(stock_model(family), folder / family)
    return folder


def load(path: Path, policy: CachePolicy = RING, **fields: Any) -> Any:
    request = LoadRequest("ring", str(path), policy, **{"window": WINDOW, "device": "cpu", "num_threads": 1, **fields})
    return registry.load(request, lambda step: None)


@pytest.fixture(scope="module")
def cwm(folders: Path) -> Iterator[Any]:
    """Three sliding layers and a full one."""
    backend = load(folders / "cwm")
    yield backend
    backend.close()


def ask(text: str, num_tokens: int, reply: tuple[str, tuple[int, ...]] | None = None) -> GenerationRequest:
    messages = [Message("user", text), *([Message("assistant", *reply)] if reply else [])]
    return GenerationRequest(tuple(messages), Sampling(temperature=0), max_new_tokens=num_tokens, ignore_end=True)


def ids_of(events: Iterator[Event]) -> tuple[int, ...]:
    return tuple(token for event in events if isinstance(event, TextChunk) for token in event.token_ids)


def run(backend: Any, request: GenerationRequest) -> tuple[int, ...]:
    return ids_of(backend.generate(request, lambda: False))


def test_greedy_text_is_what_transformers_generates(cwm: Any, folders: Path) -> None:
    stock = AutoModelForCausalLM.from_pretrained(folders / "cwm")
    prompt = cwm._prompts.ids([Message("user", TEXT)])
    arguments = {"max_new_tokens": 4 * WINDOW, "do_sample": False, "suppress_tokens": [*cwm._end_ids]}
    stock.generation_config.eos_token_id = None
    written = stock.generate(torch.tensor([prompt]), **arguments)[0, len(prompt) :]
    assert run(cwm, ask(TEXT, 4 * WINDOW)) == tuple(written.tolist())


def test_a_warm_cache_gives_what_a_cold_one_gives(cwm: Any, folders: Path) -> None:
    for text in (TEXT, TEXT + "hello", TEXT[:20], TEXT + "hello", "the end", TEXT):
        assert run(cwm, ask(text, 12)) == run(load(folders / "cwm"), ask(text, 12)), text


def test_a_reply_goes_on_where_it_stopped(cwm: Any) -> None:
    whole = run(cwm, ask(TEXT, 20))
    text = "".join(event.text for event in cwm.generate(ask(TEXT, 7), lambda: False) if isinstance(event, TextChunk))
    assert run(cwm, ask(TEXT, 13, (text, whole[:7]))) == whole[7:]


def test_it_is_labelled_and_what_grows_is_said(folders: Path) -> None:
    info = load(folders / "cwm").info
    assert info.policy is AS_TRAINED  # what "ring" comes to where full layers cannot be bounded
    assert (info.num_sliding_layers, info.num_full_layers, info.trained_window) == (3, 1, WINDOW)
    assert info.notices[0].startswith("Runs through transformers 5.")
    assert "does not know CwmForCausalLM" in info.notices[0]
    assert "1 of 4 layers were trained with full attention and keep everything" in info.notices[1]
    all_slide = load(folders / "phimoe").info
    assert all_slide.policy is RING
    assert not any("keep everything" in notice for notice in all_slide.notices)


@pytest.mark.parametrize(("policy", "num_growing"), [(RING, 1), (AS_TRAINED, 1), (FULL, 4)])
def test_bytes_follow_the_formula(folders: Path, policy: CachePolicy, num_growing: int) -> None:
    backend = load(folders / "cwm", policy)
    run(backend, ask(TEXT * 3, 5 * WINDOW))
    figures, row_bytes = backend.memory(), 2 * 2 * 8 * 4  # keys and values, heads, head_dim, float32
    assert backend.info.kv_bytes_per_token_full == 4 * row_bytes
    kept = num_growing * figures.position_tokens + (4 - num_growing) * WINDOW
    assert figures.kv_held_bytes == kept * row_bytes
    assert figures.kv_held_bytes <= figures.kv_allocated_bytes
    assert figures.kv_full_bytes == figures.position_tokens * 4 * row_bytes
    assert figures.window_tokens == (0 if policy is FULL else WINDOW)


def test_a_model_whose_layers_all_slide_stays_flat(folders: Path) -> None:
    backend = load(folders / "phimoe")
    run(backend, ask(TEXT, 2 * WINDOW))
    before = backend.memory()
    run(backend, ask(TEXT * 2, 10 * WINDOW))
    after = backend.memory()
    assert after.position_tokens > before.position_tokens
    assert after.kv_allocated_bytes == before.kv_allocated_bytes == after.kv_held_bytes


def test_a_narrower_window_is_honoured(folders: Path) -> None:
    backend = load(folders / "phimoe", window=4)
    assert (backend.info.window, backend.info.trained_window) == (4, WINDOW)
    assert "below the 8 tokens" in " ".join(backend.info.notices)
    run(backend, ask(TEXT, 3 * WINDOW))
    assert backend.memory().window_tokens == 4
    stock = AutoModelForCausalLM.from_pretrained(folders / "phimoe", sliding_window=4)
    ids = torch.randint(3, 390, (1, 40), generator=torch.Generator().manual_seed(1))
    cache = backend._new_cache(0, 1)
    with torch.inference_mode():
        expected = stock(ids, use_cache=False).logits
        actual = torch.cat([backend._model(piece, cache, logits="all") for piece in pieces(ids, [7] * 5 + [5])], dim=1)
    assert (actual - expected).abs().max() < 1e-4


def test_a_table_of_positions_ends_a_text_with_one_sentence(folders: Path) -> None:
    backend = load(folders / "gpt2")
    assert "A text ends at 64 tokens: the model has no positions beyond." in backend.info.notices
    with pytest.raises(BadRequestError, match="positions for 64 tokens"):
        run(backend, ask(TEXT, 80))
    assert len(run(backend, ask("the end", 5))) == 5


def test_16_bits_are_held_as_16_bits_and_int8_as_bfloat16(folders: Path) -> None:
    for precision, said in (("bfloat16", "bfloat16"), ("int8", "bfloat16"), ("float32", "float32")):
        backend = load(folders / "cwm", precision=precision)
        assert backend.info.precision == said
        assert len(run(backend, ask(TEXT, 2 * WINDOW))) == 2 * WINDOW
        assert any("int8 is for models" in notice for notice in backend.info.notices) == (precision == "int8")


def test_text_can_be_scored(cwm: Any) -> None:
    losses = list(cwm.token_losses(TEXT, lambda: False))
    assert len(losses) == len(cwm._prompts.plain_ids(TEXT)) - 1
    assert all(loss > 0 for loss in losses)


def test_listings_and_estimates_know_that_it_runs(folders: Path) -> None:
    files = ModelFiles.open(folders / "cwm")
    assert runnable_by(files)["ring"] is None
    assert config_for(files, "ring") is None
    assert describe(folders / "cwm").why_not("ring") == ""


def refused(folder: Path, tmp_path: Path, **changes: Any) -> str:
    """What is said of a folder with these config values, whose weights cannot be read at all."""
    path = tmp_path / "model"
    shutil.copytree(folder, path, dirs_exist_ok=True)
    config = {**json.loads((path / "config.json").read_text()), **changes}
    (path / "config.json").write_text(json.dumps(config))
    (path / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
    reason = runnable_by(ModelFiles.open(path))["ring"]
    with pytest.raises(UnsupportedModelError) as caught:
        load(path)
    assert reason is None or reason in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True},
            "T5ForConditionalGeneration is an encoder-decoder",
        ),
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "BertForMaskedLM does not write text"),
        (
            {"model_type": "homegrown", "architectures": ["HomegrownForCausalLM"], "auto_map": {"AutoConfig": "c.C"}},
            "HomegrownForCausalLM comes with code of its own, which Ringside does not run",
        ),
        ({"model_type": "homegrown", "architectures": ["HomegrownForCausalLM"]}, "no text model that transformers"),
        ({"model_type": "vit", "architectures": ["ViTModel"]}, "'vit'"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised with 'gptq'"),
        ({"model_type": "openai-gpt", "architectures": ["OpenAIGPTLMHeadModel"]}, "keeps no keys and values"),
    ],
)
def test_what_cannot_run_is_refused_by_name_before_weights_are_read(
    folders: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    assert said in refused(folders / "cwm", tmp_path, **changes)


def test_without_transformers_the_command_that_adds_it_is_named(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat_support, "_installed_version", lambda: None)
    message = refused(folders / "cwm", tmp_path)
    assert "CwmForCausalLM runs through transformers, which is not installed" in message
    assert "pip install -c constraints.txt 'transformers>=5.17,<6'" in message
    monkeypatch.setattr(compat_support, "_installed_version", lambda: "4.57.1")
    assert "needs a newer transformers than 4.57.1" in refused(folders / "cwm", tmp_path)


def test_what_attends_in_both_directions_is_caught_whatever_its_config_says(tmp_path: Path) -> None:
    config = AutoConfig.for_model(
        "bert", vocab_size=391, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
    )
    config.is_decoder = True  # or transformers would warn
    model = AutoModelForCausalLM.from_config(config)
    model.config.is_decoder = False
    with pytest.raises(UnsupportedModelError, match="attends in both directions"):
        load(save_stock_folder(model, tmp_path))


def test_missing_weights_are_named(folders: Path, tmp_path: Path) -> None:
    shutil.copytree(folders / "cwm", tmp_path / "cwm")
    file = tmp_path / "cwm" / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.2.mlp.up_proj.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ModelFileError, match=r"no weights that fit model\.layers\.2\.mlp\.up_proj\.weight"):
        load(tmp_path / "cwm")


def test_the_table_of_text_models_is_that_of_transformers() -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    assert compat_support.causal_models() == dict(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def test_frequencies_that_change_with_length_are_told(tmp_path: Path) -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 4,
        "long_factor": [2.0] * 4,
        "short_mscale": 1.0,
        "long_mscale": 1.0,
        "original_max_position_embeddings": 64,
    }
    model = stock_model("phimoe", rope_parameters=rope)
    notices = load(save_stock_folder(model, tmp_path)).info.notices
    assert any("rotary frequencies change at 64 tokens" in notice for notice in notices)


def test_keys_and_values_in_8_bits_are_refused_by_name(folders: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"cwm runs through transformers, where .* not kept in int8"):
        load(folders / "cwm", kv_type="int8")


def test_rows_of_the_head_beyond_the_tokenizer_are_never_drawn(tmp_path: Path) -> None:
    num_tokens = len(byte_level_vocabulary().tokens)
    backend = load(save_stock_folder(stock_model("cwm", vocab_size=2 * num_tokens), tmp_path / "padded"))
    drawn = run(backend, ask(TEXT, 40))
    assert len(drawn) == 40
    assert max(drawn) < num_tokens
    backend.close()
