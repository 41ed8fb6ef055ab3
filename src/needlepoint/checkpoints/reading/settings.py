"""What a model says of itself, from config.json or the metadata of a GGUF file, as one checked record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from needlepoint.checkpoints.reading.files import BadCheckpoint
from needlepoint.checkpoints.reading.gguf import Array, Gguf
from needlepoint.core.errors import shown

_MOST = 10**7  # above every count in a config (vocabularies have some 300,000); larger ones are damage
# gains of these are stored as g and used as 1 + g; GGUF files hold 1 + g already
ONE_PLUS_GAIN = ("gemma", "gemma2", "gemma3", "gemma3_text", "qwen3_next", "qwen3_5", "qwen3_5_text")


@dataclass(frozen=True)
class Settings:
    """The numbers of a model that its tensors do not show; None where the file does not say.

    gain_plus  what is added to a stored norm gain before it is used (0 or 1)
    rope_base, rope_width  base of the rotary angles, and how many coordinates of a head are turned (None: all)
    unusual  features of the model that the forward pass does not have, in words
    """

    model: str
    gguf: bool
    heads: int | None = None
    key_heads: int | None = None
    head_width: int | None = None
    width: int | None = None
    layers: int | None = None
    norm_eps: float | None = None
    rope_base: float | None = None
    rope_width: int | None = None
    local_base: float | None = None
    local_layers: tuple[int, ...] = ()
    gain_plus: float = 0.0
    score_scale: float | None = None
    activation: str = ""
    positions: int | None = None
    padding: int | None = None
    unusual: tuple[str, ...] = ()

    def base_of(self, layer: int) -> float | None:
        """Return the base of the rotary angles in a layer; Gemma 3 has another one in its local layers."""
        return self.local_base if layer in self.local_layers else self.rope_base


def _count(values: Mapping[str, Any], *names: str) -> int | None:
    """Return the first whole number that is there under one of the names, checked to be in 1..10^7."""
    for name in names:
        value = values.get(name)
        if value is None:
            continue
        if isinstance(value, Array):
            raise BadCheckpoint(f"{name} differs between layers, which is not supported; give patterns of your own.")
        if type(value) is not int or not 1 <= value <= _MOST:
            raise BadCheckpoint(f"{name} is {shown(value)}; a whole number from 1 to {_MOST:,} is expected.")
        return value
    return None


def _real(values: Mapping[str, Any], *names: str) -> float | None:
    for name in names:
        value = values.get(name)
        if value is None:
            continue
        if type(value) not in (int, float) or not 0 < value < 1e30:
            raise BadCheckpoint(f"{name} is {shown(value)}; a positive number is expected.")
        return float(value)
    return None


def from_config(config: Mapping[str, Any]) -> Settings:
    """Return the settings in a config.json as Hugging Face writes it."""
    inner = config.get("text_config")
    if isinstance(inner, dict) and "num_attention_heads" in inner:
        config = inner
    model = config.get("model_type", "")
    if type(model) is not str or len(model) > 100:
        raise BadCheckpoint(f"model_type is {shown(model)}; a word is expected.")
    heads = _count(config, "num_attention_heads", "n_head", "num_heads", "n_heads")
    head_width = _count(config, "head_dim")
    width = _count(config, "hidden_size", "n_embd", "dim", "d_model")
    rope = config.get("rope_parameters")
    rope = rope if isinstance(rope, dict) else {}
    partial = _real(config, "partial_rotary_factor", "rotary_pct") or _real(rope, "partial_rotary_factor")
    each = head_width or (width // heads if width and heads else None)
    scalar = _real(config, "query_pre_attn_scalar")
    local = _real(config, "rope_local_base_freq")
    layers = _count(config, "num_hidden_layers", "n_layer", "num_layers")
    return Settings(
        model=model,
        gguf=False,
        heads=heads,
        key_heads=_count(config, "num_key_value_heads") or heads,
        head_width=head_width,
        width=width,
        layers=layers,
        norm_eps=_real(config, "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"),
        rope_base=_real(config, "rope_theta", "rotary_emb_base") or _real(rope, "rope_theta"),
        rope_width=int(each * partial) if partial and each else None,
        local_base=local,
        local_layers=_local(config, layers) if local else (),
        gain_plus=float(model in ONE_PLUS_GAIN),
        score_scale=None if scalar is None else scalar**-0.5,
        activation=str(config.get("hidden_act") or config.get("hidden_activation") or ""),
        positions=_count(config, "max_position_embeddings", "n_positions"),
        padding=config["pad_token_id"] if type(config.get("pad_token_id")) is int else None,
        unusual=_unusual(config, rope),
    )


def _local(config: Mapping[str, Any], layers: int | None) -> tuple[int, ...]:
    """Return the layers that look at a window only: by name, or all but every sixth."""
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        return tuple(i for i, kind in enumerate(kinds) if kind == "sliding_attention")
    every = _count(config, "sliding_window_pattern", "_sliding_window_pattern") or 6
    return tuple(i for i in range(layers or 0) if (i + 1) % every)


def _unusual(config: Mapping[str, Any], rope: Mapping[str, Any]) -> tuple[str, ...]:
    found = []
    scaling = config.get("rope_scaling") or (rope if rope.get("rope_type", "default") != "default" else None)
    if scaling:
        found.append("scaled rotary angles (rope_scaling)")
    if config.get("attn_logit_softcapping") or config.get("final_logit_softcapping"):
        found.append("capped scores (softcapping)")
    if config.get("position_embedding_type") not in (None, "absolute"):
        found.append(f"position_embedding_type {shown(config['position_embedding_type'])}")
    return tuple(found)


def from_gguf(file: Gguf) -> Settings:
    """Return the settings in a GGUF file's metadata."""
    kind = file.architecture
    own = {k.removeprefix(f"{kind}."): v for k, v in file.metadata.items() if k.startswith(f"{kind}.")}
    heads = _count(own, "attention.head_count")
    found = [] if own.get("rope.scaling.type", "none") == "none" else ["scaled rotary angles (rope.scaling)"]
    if "attn_logit_softcapping" in own or "final_logit_softcapping" in own:
        found.append("capped scores (softcapping)")
    if "rope_freqs.weight" in file.places:
        found.append("scaled rotary angles (rope_freqs)")
    return Settings(
        model=kind,
        gguf=True,
        heads=heads,
        key_heads=_count(own, "attention.head_count_kv") or heads,
        head_width=_count(own, "attention.key_length"),
        width=_count(own, "embedding_length"),
        layers=_count(own, "block_count"),
        norm_eps=_real(own, "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"),
        rope_base=_real(own, "rope.freq_base"),
        rope_width=_count(own, "rope.dimension_count"),
        positions=_count(own, "context_length"),
        unusual=tuple(found),
    )
