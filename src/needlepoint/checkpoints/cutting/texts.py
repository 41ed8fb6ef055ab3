"""Text to sequences of tokens: sentences for encoders, stretches of running text for decoders."""

from __future__ import annotations

import re
from collections.abc import Sequence

from needlepoint.checkpoints.forward.decoder import Decoder
from needlepoint.checkpoints.forward.encoder import Encoder
from needlepoint.core.errors import InvalidParameter

STRETCH = 256
"""Tokens of a sequence for a decoder; costs grow with its square, and offsets beyond it are not seen."""
_LONGEST = 512
"""Tokens of a sentence for an encoder; longer ones are cut off there."""
_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n")


def sentences(text: str) -> list[str]:
    """Return the sentences of a text: what ends with . ! or ? or an empty line, with spaces made single."""
    found = (" ".join(part.split()) for part in _END.split(text))
    return [part for part in found if part]


def sequences(model: Encoder | Decoder, text: str | Sequence[str]) -> list[list[int]]:
    """Return the token numbers of a text (split here) or of texts that are given apart; those of fewer than two tokens
    are left out."""
    if isinstance(text, str):
        texts: Sequence[str] = sentences(text) if model.kind == "encoder" else [text]
    else:
        texts = list(text)
        if not all(isinstance(one, str) for one in texts):
            raise InvalidParameter("text must be a text or a list of texts.")
    most = min(_LONGEST, model.settings.positions or _LONGEST)
    found = []
    for one in texts:
        numbers = model.tokenizer.encode(one)
        if model.kind == "encoder":
            found.append(numbers[:most])
        else:
            stretch = min(STRETCH, model.settings.positions or STRETCH)
            found += [numbers[i : i + stretch] for i in range(0, len(numbers), stretch)]
    found = [numbers for numbers in found if len(numbers) > 1]
    if not found:
        raise InvalidParameter("the text has no sentence of two tokens or more.")
    return found


def held_apart(found: list[list[int]], every: int = 4) -> tuple[list[list[int]], list[list[int]]]:
    """Return sequences for calibration and for testing: every fourth one is held out, or the last of fewer."""
    every = min(every, len(found))
    if every < 2:
        raise InvalidParameter(
            f"the text gives {len(found)} sequences, too few to hold some out; give more, or held_out= of its own."
        )
    return [s for i, s in enumerate(found) if (i + 1) % every], found[every - 1 :: every]
