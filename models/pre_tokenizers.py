"""How byte-level BPE models cut text into words before merging, by the name a GGUF file gives (`tokenizer.ggml.pre`).

A word is never merged across, so the wrong cut gives other ids than the model was trained on. The expressions are those
of the models' published `tokenizer.json` files; the names are those that llama.cpp's converter writes.
"""

from __future__ import annotations

from dataclasses import dataclass

from backends.errors import UnsupportedModelError


@dataclass(frozen=True)
class PreTokenizer:
    """Cuts text by each expression in turn; what an expression does not match stays as it is.

    Attributes:
        patterns: Oniguruma expressions.
        ignores_merges: a word that is a token as a whole is taken as that token, whatever the merges say.
        adds_bos: whether such models begin with BOS where the file does not say.
        byte_level: text is spelled in GPT-2's byte alphabet; otherwise in UTF-8 with spaces written "▁".
    """

    patterns: tuple[str, ...]
    ignores_merges: bool = False
    adds_bos: bool = False
    byte_level: bool = True


_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K_TAIL = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_LLAMA3 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_CL100K_TAIL}"
_QWEN2 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}|{_CL100K_TAIL}"
_QWEN35 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_MINICPM5 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}+|{_CL100K_TAIL}"
_SEED_CODER = rf"{_CONTRACTION}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_BAILING = rf"'(?i:[sdmt]|ll|ve|re)|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
_EXAONE_MOE = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)


def _cased_words(digits: str, contraction: str) -> str:
    """Words cut where lower case turns to upper (the o200k family)."""
    start = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{start}{_UPPER}*{_LOWER}+{contraction}|{start}{_UPPER}+{_LOWER}*{contraction}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


_O200K = _cased_words(r"\p{N}{1,3}", f"{_CONTRACTION}?")
_TEKKEN = _cased_words(r"\p{N}", "")
_DEEPSEEK_TAIL = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
_DEEPSEEK3 = (r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", _DEEPSEEK_TAIL)
_HAN_TO_HANGUL = "[一-龥ࠀ-一가-\ud7ff]+"
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN_TO_HANGUL, r"\p{N}")
_DEEPSEEK_LLM = (
    r"[\r\n]",
    r"\s?[\p{Lu}\p{Ll}\p{Lt}]+",
    "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
    r"\s+$",
    _HAN_TO_HANGUL,
    r"\p{N}+",
)
_FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
_LINES = r"[^\n]+|[\n]+"

_FAMILIES: tuple[tuple[PreTokenizer, str], ...] = (
    (PreTokenizer(_DEFAULT), "default"),
    (
        PreTokenizer((_GPT2,)),
        "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum modern-bert",
    ),
    (PreTokenizer((r"\p{N}", _GPT2)), "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2"),
    (
        PreTokenizer((_LLAMA3,), ignores_merges=True, adds_bos=True),
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2",
    ),
    (PreTokenizer((_LLAMA3,)), "dbrx smaug-bpe glm4 chatglm-bpe"),
    (PreTokenizer((_QWEN2,)), "qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan solar-open grok-2 kormo"),
    (PreTokenizer((_QWEN35,)), "qwen35"),
    (PreTokenizer((_TEKKEN,), ignores_merges=True, adds_bos=True), "tekken"),
    (PreTokenizer((_O200K,)), "gpt-4o llama4 kanana2 minimax-m2 talkie"),
    (PreTokenizer((r"\d{1,3}(?=(?:\d{3})*\b)", _O200K)), "tiny_aya cohere2moe"),
    (PreTokenizer(_DEEPSEEK_LLM), "deepseek-llm"),
    (PreTokenizer(_DEEPSEEK_CODER), "deepseek-coder"),
    (PreTokenizer(_DEEPSEEK3), "deepseek-v3 hunyuan-dense joyai-llm hy_v4"),
    (PreTokenizer(_FALCON), "falcon"),
    (PreTokenizer((_BLOOM,)), "bloom poro-chat gpt3-finnish"),
    (PreTokenizer((_BLOOM, r"\p{N}")), "viking"),
    (PreTokenizer((r"\p{N}+", r"(?=(\d{3})+(?!\d))")), "superbpe"),
    (PreTokenizer((_BAILING,)), "bailingmoe bailingmoe2 llada-moe"),
    (PreTokenizer((_SEED_CODER,)), "seed-coder"),
    (PreTokenizer((r"\p{N}{1,3}", _MINICPM5), ignores_merges=True), "minicpm5"),
    (PreTokenizer((_EXAONE_MOE,)), "exaone-moe"),
    (PreTokenizer((_LINES, _QWEN2)), "laguna"),
    (PreTokenizer((_LINES,), adds_bos=True, byte_level=False), "gemma4"),
    (PreTokenizer((_LINES,), byte_level=False), "sarvam-moe"),
)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {name: family for family, names in _FAMILIES for name in names.split()}


def find_pre_tokenizer(name: str) -> PreTokenizer:
    """Return the cut a GGUF file names.

    Raises:
        UnsupportedModelError: the name is unknown; guessing would give the model ids it was not trained on.
    """
    if name not in PRE_TOKENIZERS:
        raise UnsupportedModelError(
            f"This file's tokenizer cuts text by rules named {name!r}, which the ring backend does not know.",
            "Use the llama.cpp backend, or the model's Hugging Face folder.",
        )
    return PRE_TOKENIZERS[name]
