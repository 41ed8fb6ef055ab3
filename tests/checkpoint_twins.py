"""A second implementation of both forward passes, in float64 and one token and head at a time where it is cheap.

It shares no code with the package: files are read by `raw_tensors` or the `gguf` package, positions are complex
numbers. `wrong` switches one choice to a mistake that a reader could make.
"""

import math

import numpy as np
from scipy import stats


def ln(x, gain, bias, eps):
    mean = x.mean()
    return (x - mean) / math.sqrt(((x - mean) ** 2).mean() + eps) * gain + bias


def encoder_states(t, numbers, heads, eps=1e-12):
    """Hidden states of a BERT-like encoder after the embeddings and every layer, a list of (tokens, d)."""
    t = {name.removeprefix("bert."): values.astype(np.float64) for name, values in t.items()}
    x = np.array(
        [
            ln(
                t["embeddings.word_embeddings.weight"][n]
                + t["embeddings.position_embeddings.weight"][i]
                + t["embeddings.token_type_embeddings.weight"][0],
                t["embeddings.LayerNorm.weight"],
                t["embeddings.LayerNorm.bias"],
                eps,
            )
            for i, n in enumerate(numbers)
        ]
    )
    found, layer, p = [x], 0, x.shape[1] // heads
    while (at := f"encoder.layer.{layer}.") + "output.dense.weight" in t:

        def lin(name, y, at=at):
            return np.einsum("oi,ti->to", t[f"{at}{name}.weight"], y) + t[f"{at}{name}.bias"]

        q, k, v = (lin(f"attention.self.{part}", x) for part in ("query", "key", "value"))
        mixed = np.zeros_like(x)
        for h in range(heads):
            mine = slice(h * p, (h + 1) * p)
            for a in range(len(x)):
                score = np.array([q[a, mine] @ k[b, mine] for b in range(len(x))]) / math.sqrt(p)
                weight = np.exp(score - score.max())
                mixed[a, mine] = weight / weight.sum() @ v[:, mine]
        x = x + lin("attention.output.dense", mixed)
        norm = f"{at}attention.output.LayerNorm"
        x = np.array([ln(row, t[f"{norm}.weight"], t[f"{norm}.bias"], eps) for row in x])
        wide = lin("intermediate.dense", x)
        x = x + lin("output.dense", wide * stats.norm.cdf(wide))
        x = np.array([ln(row, t[f"{at}output.LayerNorm.weight"], t[f"{at}output.LayerNorm.bias"], eps) for row in x])
        found.append(x)
        layer += 1
    return found


def decoder_states(t, numbers, *, heads, key_heads, base, eps, pairs, q_norm=False, wrong=""):
    """Hidden states of a LLaMA-like decoder; `t` has the names of a Hugging Face file without `model.`."""
    x = t["embed_tokens.weight"][list(numbers)]
    found, layer, d = [x], 0, x.shape[1]
    if wrong == "half pairing":
        pairs = "half" if pairs == "adjacent" else "adjacent"
    if wrong == "base":
        base = 10_000.0

    def rms(y, gain):
        return y / np.sqrt((y * y).mean(axis=-1)[..., None] + eps) * gain

    while (at := f"layers.{layer}.") + "mlp.down_proj.weight" in t:
        gain = t[at + "input_layernorm.weight"]
        y = rms(x, 1.0 if wrong == "gain" and layer == 0 else gain)
        rows = {}
        for part in "qkv":
            rows[part] = np.einsum("oi,ti->to", t[f"{at}self_attn.{part}_proj.weight"], y, optimize=True)
            if f"{at}self_attn.{part}_proj.bias" in t:
                rows[part] = rows[part] + t[f"{at}self_attn.{part}_proj.bias"]
        p = rows["q"].shape[1] // heads
        mixed = np.zeros((len(x), heads * p))
        for h in range(heads):
            group = h % key_heads if wrong == "modulo" else h // (heads // key_heads)
            q, k, v = rows["q"][:, h * p : (h + 1) * p], *(rows[c][:, group * p : (group + 1) * p] for c in "kv")
            if q_norm:
                q, k = rms(q, t[at + "self_attn.q_norm.weight"]), rms(k, t[at + "self_attn.k_norm.weight"])
            if wrong != "no rotary":
                q, k = turned(q, base, pairs), turned(k, base, pairs)
            else:
                q, k = turned(q, base, pairs, 0.0), turned(k, base, pairs, 0.0)
            score = np.real(q @ k.conj().T) / math.sqrt(p)
            score[np.triu_indices(len(x), 1)] = -np.inf
            weight = np.exp(score - score.max(axis=1)[:, None])
            mixed[:, h * p : (h + 1) * p] = weight / weight.sum(axis=1)[:, None] @ v
        x = x + mixed @ t[at + "self_attn.o_proj.weight"].T
        y = rms(x, t[at + "post_attention_layernorm.weight"])
        gate = y @ t[at + "mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ t[at + "mlp.up_proj.weight"].T)) @ t[at + "mlp.down_proj.weight"].T
        found.append(x)
        layer += 1
    assert d == x.shape[1]
    return found, rms(x, t["norm.weight"]) @ t["embed_tokens.weight"].T


def turned(rows, base, pairs, speed=1.0):
    """Rows as complex numbers, one per pair, turned by their position."""
    p = rows.shape[1]
    z = rows[:, 0::2] + 1j * rows[:, 1::2] if pairs == "adjacent" else rows[:, : p // 2] + 1j * rows[:, p // 2 :]
    angle = np.outer(speed * np.arange(len(rows)), float(base) ** (-np.arange(p // 2) / (p // 2)))
    return z * np.exp(1j * angle)


def nats(logits, numbers):
    """Mean loss of the next token."""
    logits = logits[:-1].astype(np.float64)
    logits = logits - logits.max(axis=1)[:, None]
    partition = np.log(np.exp(logits).sum(axis=1))
    return float(np.mean(partition - logits[np.arange(len(logits)), list(numbers[1:])]))
