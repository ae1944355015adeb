"""llama.cpp behind the contract: our own token loop on its low-level API, so that a reply can go on for ever.

Importing this package loads the llama.cpp libraries; the registry does so inside the worker process only. Everything
here is written against llama-cpp-python 0.3.36 and leans on behaviour checked in that version: see `sequence` for what
happens when the context is full, `plan` for how a window becomes a context, `generation` for the loop.
"""

from backends.llamacpp.loading import load

__all__ = ["load"]
