"""Which forward pass a checkpoint has."""

from __future__ import annotations

import numpy as np

from needlepoint.checkpoints.forward.decoder import Decoder
from needlepoint.checkpoints.forward.encoder import Encoder
from needlepoint.checkpoints.reading.checkpoint import Checkpoint
from needlepoint.checkpoints.reading.files import BadCheckpoint


def model_of(checkpoint: Checkpoint, dtype: type = np.float32) -> Encoder | Decoder:
    """Return the forward pass of a checkpoint; raises BadCheckpoint for families that have none."""
    if checkpoint.family.name == "BERT-like" and not checkpoint.settings.gguf:
        return Encoder(checkpoint, dtype)
    if checkpoint.family.name == "LLaMA-like":
        return Decoder(checkpoint, dtype)
    raise BadCheckpoint(
        f"{checkpoint.path.name} ({checkpoint.family.name}) has no forward pass here: BERT-like safetensors and "
        "LLaMA-like models have one. Its heads can be read."
    )
