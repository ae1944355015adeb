"""Hugging Face configs against transformers' own config classes: windows per layer, defaults, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import CONFIG_MAPPING, AutoConfig

from backends.errors import ModelFileError, UnsupportedModelError
from models.config import LayerConfig, MoeConfig
from models.hf_config import parse_hf_config
from models.hf_defaults import DEFAULTS

SLIDING, FULL = "sliding_attention", "full_attention"
TINY: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "sliding_window": 8,
    "max_position_embeddings": 512,
}
ALL_SLIDE = ("mistral", "ministral3", "phi3", "starcoder2", "mixtral")
"""Families whose modeling file gives every layer the one window and reads no layer types."""


def parse(model_type: str, **values: Any) -> Any:
    return parse_hf_config({"model_type": model_type, **TINY, **values})


def windows(model_type: str, **values: Any) -> list[int | None]:
    return [layer.trained_window for layer in parse(model_type, **values).layers]


def windows_in_transformers(model_type: str, **values: Any) -> list[int | None]:
    config = AutoConfig.for_model(model_type, **{**TINY, **values})
    types = getattr(config, "layer_types", None)
    if types is None or model_type in ALL_SLIDE:
        return [getattr(config, "sliding_window", None)] * config.num_hidden_layers
    return [config.sliding_window if kind == SLIDING else None for kind in types]


@pytest.mark.parametrize(
    "model_type", [name for name in DEFAULTS if name not in ("llama", "olmo2", "granite", "glm", "glm4")]
)
def test_layers_slide_as_in_transformers_when_the_config_names_no_pattern(model_type: str) -> None:
    assert windows(model_type) == windows_in_transformers(model_type)


@pytest.mark.parametrize("model_type", ["llama", "olmo2", "granite", "glm", "glm4"])
def test_a_window_means_nothing_in_families_without_sliding_layers(model_type: str) -> None:
    assert windows(model_type) == [None] * 6


@pytest.mark.parametrize("model_type", ["gemma2", "gemma3_text", "olmo3", "cohere2", "exaone4", "gpt_oss", "ministral"])
def test_layer_types_win_over_the_family_pattern(model_type: str) -> None:
    types = [FULL, SLIDING, FULL, FULL, SLIDING, SLIDING]
    assert windows(model_type, layer_types=types) == windows_in_transformers(model_type, layer_types=types)
    assert windows(model_type, layer_types=types) == [None, 8, None, None, 8, 8]


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
@pytest.mark.parametrize(
    "values",
    [
        {"use_sliding_window": False},
        {"use_sliding_window": True, "max_window_layers": 2},
        {"use_sliding_window": True, "max_window_layers": 0},
        {"use_sliding_window": True, "max_window_layers": 4},
        {"use_sliding_window": True},
    ],
)
def test_qwen_slides_from_max_window_layers_on_and_only_if_told_to(model_type: str, values: dict[str, Any]) -> None:
    values = {"num_hidden_layers": 4, **values}
    assert windows(model_type, **values) == windows_in_transformers(model_type, **values)


def test_qwen_windows_by_hand() -> None:
    qwen = {"num_hidden_layers": 4, "use_sliding_window": True}
    assert windows("qwen2", **qwen, max_window_layers=2) == [None, None, 8, 8]
    assert windows("qwen2", **qwen, max_window_layers=0) == [8, 8, 8, 8]
    assert windows("qwen2", **qwen) == [None] * 4
    assert windows("qwen2", num_hidden_layers=4, use_sliding_window=False, max_window_layers=0) == [None] * 4


def test_mistral_slides_by_default_but_not_with_null() -> None:
    config = {"model_type": "mistral", **TINY}
    assert windows("mistral", sliding_window=None) == [None] * 6
    del config["sliding_window"]
    assert parse_hf_config(config).trained_window == 4096


def test_old_patterns_count_every_nth_layer_as_full() -> None:
    assert windows("gemma3_text", sliding_window_pattern=3) == [8, 8, None, 8, 8, None]
    assert windows("cohere2", sliding_window_pattern=2) == [8, None, 8, None, 8, None]


def test_exaone4_spells_its_pattern_in_letters() -> None:
    assert windows("exaone4", sliding_window_pattern="LLG") == [8, 8, None] * 2
    types = [SLIDING, FULL] * 3
    assert windows("exaone4", sliding_window_pattern="LLLG", layer_types=types) == [8, None] * 3
    assert windows("exaone4", sliding_window=None, sliding_window_pattern=None) == [None] * 6


def test_default_patterns() -> None:
    assert windows("gemma2") == [8, None] * 3
    assert windows("gpt_oss") == [8, None] * 3
    assert windows("gemma3_text") == [8] * 5 + [None]
    assert windows("cohere2") == windows("olmo3") == [8, 8, 8, None, 8, 8]


def test_exaone4_without_a_window_rotates_every_layer_and_with_one_only_the_sliding() -> None:
    assert [layer.rope is not None for layer in parse("exaone4").layers] == [True, True, True, False, True, True]
    plain = parse("exaone4", sliding_window=None)
    assert all(layer.rope is not None and layer.trained_window is None for layer in plain.layers)


def test_cohere2_rotates_interleaved_on_sliding_layers_only() -> None:
    layers = parse("cohere2").layers
    assert [layer.rope is None for layer in layers] == [layer.trained_window is None for layer in layers]
    assert {layer.rope.layout for layer in layers if layer.rope} == {"interleaved"}


def test_smollm3_skips_rotation_every_fourth_layer_and_slides_there_if_told_to() -> None:
    layers = parse("smollm3", use_sliding_window=True).layers
    assert [layer.rope is None for layer in layers] == [False, False, False, True, False, False]
    assert [layer.trained_window for layer in layers] == [None, None, None, 8, None, None]
    assert windows("smollm3") == [None] * 6
    given = parse("smollm3", no_rope_layers=[0, 1, 1, 1, 1, 0]).layers
    assert [layer.rope is None for layer in given] == [True, False, False, False, False, True]


@pytest.mark.parametrize("model_type", list(DEFAULTS))
def test_defaults_are_those_of_the_transformers_class(model_type: str) -> None:
    """Every value a config may leave out; null where ours follows from another key."""
    config = CONFIG_MAPPING[model_type]()
    in_code = {
        "rope_theta",
        "rope_local_base_freq",
        "rope_parameters",
        "sliding_window_pattern",
        "partial_rotary_factor",
    }
    inherited = {"attention_bias", "mlp_bias", "hidden_act", "rms_norm_eps", "use_sliding_window", "max_window_layers"}
    for key, value in DEFAULTS[model_type].items():
        if key in in_code or (key in inherited and not hasattr(config, key)):
            continue
        theirs = None if key == "sliding_window" and not getattr(config, "use_sliding_window", True) else value
        assert getattr(config, key) == theirs, key


@pytest.mark.parametrize("model_type", list(DEFAULTS))
def test_an_empty_config_means_the_class_defaults(model_type: str) -> None:
    theirs = CONFIG_MAPPING[model_type]()
    ours = parse_hf_config({"model_type": model_type})
    assert (ours.hidden_size, ours.num_heads, len(ours.layers), ours.vocab_size) == (
        theirs.hidden_size,
        theirs.num_attention_heads,
        theirs.num_hidden_layers,
        theirs.vocab_size,
    )
    assert ours.num_kv_heads == theirs.num_key_value_heads
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads)
    assert ours.tied_embeddings == theirs.tie_word_embeddings
    assert ours.context_tokens == theirs.max_position_embeddings


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"head_dim": 16}, (4, 2, 16)),
        ({"head_dim": None}, (4, 2, 8)),
        ({}, (4, 2, 8)),
        ({"num_key_value_heads": None}, (4, 4, 8)),
    ],
)
def test_head_sizes(values: dict[str, Any], expected: tuple[int, int, int]) -> None:
    config = parse("llama", **values)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == expected


def test_absent_kv_heads_are_the_heads() -> None:
    values = {key: value for key, value in TINY.items() if key != "num_key_value_heads"}
    assert parse_hf_config({"model_type": "llama", **values}).num_kv_heads == 4
    assert parse_hf_config({"model_type": "mistral", **values}).num_kv_heads == 4  # its default of 8 is for 32 heads


def test_biases_follow_the_family() -> None:
    def biases(model_type: str, **values: Any) -> tuple[bool, bool, bool]:
        config = parse(model_type, **values)
        return config.qkv_bias, config.output_bias, config.mlp_bias

    assert biases("llama") == (False, False, False)
    assert biases("llama", attention_bias=True, mlp_bias=True) == (True, True, True)
    assert biases("mistral", attention_bias=True) == (False, False, False)  # its modeling file has none
    assert biases("qwen2") == (True, False, False)
    assert biases("qwen3", attention_bias=True) == (True, True, False)
    assert biases("glm4") == (True, False, False)
    assert biases("starcoder2") == (True, True, True)


def test_soft_caps_are_off_with_null() -> None:
    assert (parse("gemma2").attention_softcap, parse("gemma2").logit_softcap) == (50.0, 30.0)
    off = parse("gemma2", attn_logit_softcapping=None, final_logit_softcapping=None)
    assert (off.attention_softcap, off.logit_softcap) == (None, None)
    assert (parse("gemma3_text").attention_softcap, parse("gemma3_text").logit_softcap) == (None, None)


def test_scales() -> None:
    gemma = parse("gemma3_text", query_pre_attn_scalar=168)
    assert gemma.attention_scale == 168**-0.5
    assert gemma.embedding_scale == 32**0.5
    granite = parse("granite", attention_multiplier=0.2, logits_scaling=8.0, residual_multiplier=0.5)
    assert (granite.attention_scale, granite.logit_scale, granite.residual_scale) == (0.2, 0.125, 0.5)


def test_query_scale_of_ministral3() -> None:
    rope = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 64}
    scaled = parse("ministral3", rope_parameters={**rope, "llama_4_scaling_beta": 0.1})
    assert (scaled.query_scale_beta, scaled.query_scale_tokens) == (0.1, 64)
    assert parse("ministral3", rope_parameters=rope).query_scale_beta == 0.0


def test_experts() -> None:
    assert parse("mixtral", num_local_experts=4).layers[0].moe == MoeConfig(4, 2, 48)
    qwen = parse("qwen3_moe", num_experts=8, moe_intermediate_size=24, mlp_only_layers=[1], decoder_sparse_step=2)
    assert [layer.moe is not None for layer in qwen.layers] == [False, False, False, True, False, True]
    assert qwen.layers[3].moe == MoeConfig(8, 8, 24, norm_topk=False)
    gpt_oss = parse("gpt_oss", num_local_experts=4)
    assert gpt_oss.learned_sinks
    assert gpt_oss.layers[0].moe == MoeConfig(
        4, 4, 48, kind="topk_softmax", bias=True, gate_limit=7.0, gate_alpha=1.702
    )


def test_the_text_part_of_a_multimodal_gemma3() -> None:
    """The published 4B config names only what differs from the class."""
    config = parse_hf_config(
        {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "model_type": "gemma3",
            "eos_token_id": [1, 106],
            "text_config": {
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "model_type": "gemma3_text",
                "num_hidden_layers": 34,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                "sliding_window": 1024,
            },
            "vision_config": {"hidden_size": 1152},
        }
    )
    assert config.architecture == "Gemma3ForConditionalGeneration"
    assert (config.hidden_size, config.num_heads, config.num_kv_heads, config.head_dim) == (2560, 8, 4, 256)
    assert (len(config.layers), config.num_full_layers, config.trained_window) == (34, 5, 1024)
    assert config.eos_token_ids == (1, 106)
    assert config.tied_embeddings
    full, sliding = config.layers[5].rope, config.layers[0].rope
    assert full is not None
    assert sliding is not None
    assert (full.theta, full.kind, full.factor) == (1e6, "linear", 8.0)
    assert (sliding.theta, sliding.kind) == (1e4, "default")


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"model_type": "mamba", "architectures": ["MambaForCausalLM"]}, "MambaForCausalLM"),
        ({"model_type": "gemma3n"}, "gemma3n"),
        ({}, "None"),
        ({"model_type": "llama", "hidden_act": "relu6"}, "relu6"),
        ({"model_type": "llama", "rope_scaling": {"type": "magic", "factor": 2.0}}, "magic"),
        ({"model_type": "llama", "partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"model_type": "ministral", "layer_types": ["chunked_attention"] * 6}, "chunked_attention"),
        ({"model_type": "llama", "quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "both directions"),
        ({"model_type": "llama", "num_kv_shared_layers": 2}, "share keys and values"),
        ({"model_type": "llama", "architectures": ["LlamaForSequenceClassification"]}, "does not write text"),
        ({"model_type": "mllama", "text_config": {"model_type": "mllama_text_model"}}, "mllama"),
    ],
)
def test_what_the_decoder_cannot_do_is_refused_by_name(config: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        parse_hf_config({**TINY, **config})


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"hidden_size": "wide"}, "hidden_size is 'wide'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3"),
        ({"vocab_size": None}, "vocab_size is None"),
        ({"rms_norm_eps": 0}, "rms_norm_eps is 0"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
        ({"eos_token_id": "</s>"}, "eos_token_id is '</s>'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor is missing"),
        ({"rope_theta": -1.0}, "rope_theta is -1.0"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        parse("llama", **values)
    assert named in str(caught.value)
    assert "config.json" in str(caught.value)


def test_contradictions_are_named() -> None:
    with pytest.raises(ModelFileError, match="layer_types names 2 layers, but num_hidden_layers is 6"):
        parse("gemma3_text", layer_types=[SLIDING, FULL])
    with pytest.raises(ModelFileError, match="sliding_window is None"):
        parse("gemma3_text", sliding_window=None)


def test_layer_configs_compare_by_value() -> None:
    assert parse("mistral").layers[0] == LayerConfig(8, parse("mistral").layers[1].rope)
