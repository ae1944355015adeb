"""A model's attention without its weights: the same heads, windows, sinks and rotary settings, all else small.

What a cache does depends on these alone, so a skeleton of any model is probed in seconds. One layer stands for each
kind; windows are cut to a size at which many of them pass quickly, in proportion.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from models.config import LayerConfig, ModelConfig
from models.decoder import Decoder

LONGEST_WINDOW = 128
_SMALL_SIZE = 48
_VOCAB_SIZE = 64


@dataclass(frozen=True)
class Skeleton:
    """What is probed in the place of the model.

    Attributes:
        config: one layer a kind.
        window, sinks: in the place of those asked for.
    """

    config: ModelConfig
    window: int
    sinks: int

    @classmethod
    def of(cls, config: ModelConfig, window: int, sinks: int) -> Skeleton:
        """Shrink a model. Windows keep their order and their ratios as far as whole tokens allow."""
        widest = max([window, *(layer.trained_window or 0 for layer in config.layers)])
        shrink = max(1.0, widest / LONGEST_WINDOW)

        def shrunk(tokens: int) -> int:
            return max(2, round(tokens / shrink))

        kinds = dict.fromkeys(
            LayerConfig(None if layer.trained_window is None else shrunk(layer.trained_window), layer.rope)
            for layer in config.layers
        )
        small = replace(
            config, vocab_size=_VOCAB_SIZE, hidden_size=_SMALL_SIZE, mlp_size=_SMALL_SIZE, layers=tuple(kinds)
        )
        return cls(small, shrunk(window), min(sinks, 8))

    def with_layer(self, index: int) -> Skeleton:
        """Return the skeleton of that layer alone: there, what a token sees is exactly what attention lets through."""
        return replace(self, config=replace(self.config, layers=(self.config.layers[index],)))

    def decoder(self, seed: int = 0) -> Decoder:
        """Return a decoder with random weights, float32 on the CPU."""
        generator = torch.Generator().manual_seed(seed)
        decoder = Decoder(self.config).eval().requires_grad_(False)
        for name, parameter in decoder.named_parameters():
            if "norm" in name:
                is_head_norm = ".q_norm." in name or ".k_norm." in name
                kind = self.config.qk_norm_kind if is_head_norm else self.config.norm
                parameter.fill_(0.0 if kind == "rms_plus_one" or name.endswith("bias") else 1.0)
            else:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[-1] ** -0.5)
        return decoder


def random_ids(num_tokens: int, num_rows: int = 1, seed: int = 0) -> torch.Tensor:
    """Return token ids [rows, tokens] of the skeleton's vocabulary."""
    return torch.randint(0, _VOCAB_SIZE, (num_rows, num_tokens), generator=torch.Generator().manual_seed(seed))
