"""An embedding that looks its rows up in the model file, so that a table shared with the head is not held twice.

A step needs one row of a table that is often the largest tensor of the model. Reading it costs some ten microseconds;
the system keeps the pages that are used. Rows are exact, whatever the head's copy was rounded to.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.stored_tensor import StoredTensor


class FileEmbedding(nn.Module):
    """Looks up rows of a stored tensor of two dimensions, called like `torch.nn.Embedding`. For CPUs.

    Its file stays open, and readable even if it is renamed, until the module is gone.
    """

    def __init__(self, tensor: StoredTensor, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self._row_elements = tensor.row_elements
        self._dtype = dtype
        self._pick = tensor.picker()

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return [B, T, row_elements] for int64 [B, T]."""
        rows = self._pick(tokens_BT.flatten().tolist())
        return rows.to(self._dtype).view(*tokens_BT.shape, self._row_elements)
