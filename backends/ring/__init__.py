"""The ring backend: our own decoder in PyTorch, on CPU or CUDA, over a key/value cache of fixed size.

`loading` brings a model from its files, `generation` is the loop, `sequence` knows what is in the cache and what of it
a new prompt can take up, `memory` counts bytes. What a model computes is in `models`. Imported in a worker only.
"""

from backends.ring.loading import load

__all__ = ["load"]
