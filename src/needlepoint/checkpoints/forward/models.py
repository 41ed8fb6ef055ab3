"""Which forward pass a checkpoint has."""

from __future__ import annotations

import numpy as np

from needlepoint.checkpoints.forward.decoder import Decoder
from needlepoint.checkpoints.forward.encoder import Encoder
from needlepoint.checkpoints.reading.checkpoint import Checkpoint
from needlepoint.checkpoints.reading.files import BadCheckpoint
from needlepoint.core.errors import shown

ENCODERS = ("bert", "roberta", "xlm-roberta", "camembert")
DECODERS = ("llama", "mistral", "qwen2", "qwen3")
"""Model types that are run. Others share names of tensors with them and differ in norms, positions or order of parts,
so that their hidden states would be wrong without a sign of it."""


def model_of(checkpoint: Checkpoint, dtype: type = np.float32) -> Encoder | Decoder:
    """Return the forward pass of a checkpoint; raises BadCheckpoint for models that have none."""
    kind = checkpoint.settings.model
    if checkpoint.family.name == "BERT-like" and not checkpoint.settings.gguf and kind in ENCODERS:
        return Encoder(checkpoint, dtype)
    if checkpoint.family.name == "LLaMA-like" and kind in DECODERS:
        return Decoder(checkpoint, dtype)
    raise BadCheckpoint(
        f"{checkpoint.path.name} ({checkpoint.family.name}, model type {shown(kind)}) has no forward pass here; "
        f"safetensors of {', '.join(ENCODERS)} and models of {', '.join(DECODERS)} have one. Its heads can be read."
    )
