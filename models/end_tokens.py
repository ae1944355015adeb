"""Texts of the tokens that end a reply in any vocabulary. See `models.turn_ends` for what templates add."""

from __future__ import annotations

from collections.abc import Container

END_TOKENS = frozenset(
    {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<turn|>", "<end_of_utterance>"}
    | {"<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<|tool_response>"}
    | {"<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "</s>", "<eos>", "[EOS]", "[e~["}
    | {"<EOT>", "_<EOT>", "< EOT >", "[EOT]"}
    | {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}
    | {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"}
)
"""Whole tokens that end a reply wherever a vocabulary holds them, as in llama.cpp (`llama-vocab.cpp`): files often
name only one of theirs. The last two lines end the middle that a coder fills in, or its file."""

HTML_END = "</s>"
"""An end of text only where it is a control token: as a word of a vocabulary it strikes text through no longer."""

_HARMONY = ("<|return|>", "<|call|>", "<|end|>")
_HARMONY_MESSAGE_END = "<|end|>"


def ends_reply(text: str, is_control: bool, vocabulary: Container[str]) -> bool:
    """Say whether a token of a vocabulary ends a reply, by its text and whether it is a control token."""
    return text in END_TOKENS and (is_control or text != HTML_END) and not ends_no_reply(text, vocabulary)


def ends_no_reply(text: str, vocabulary: Container[str]) -> bool:
    """Say whether a token of `END_TOKENS` ends something else here: gpt-oss closes its reasoning with `<|end|>`."""
    return text == _HARMONY_MESSAGE_END and all(each in vocabulary for each in _HARMONY)
