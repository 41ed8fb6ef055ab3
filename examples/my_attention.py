# %% [markdown] long
# # Does my attention beat softmax?
#
# An attention of your own is a function from the scores of a sequence to the weights of its tokens. Here two of
# them meet softmax, from finitely many samples and at infinite data.
#
# The first has a sink: its weights need not sum to one, so that a sequence without a convincing token can be left
# alone. The second is a leaky softmax that gives every token a little weight.

# %%
import jax.numpy as jnp

import needlepoint as ndl


@ndl.activation("sink")
def sink(scores):
    """A softmax with one more score, 0, whose weight goes nowhere."""
    e = jnp.exp(scores)
    return e / (1.0 + jnp.sum(e))


@ndl.activation("leaky")
def leaky(scores):
    """A softmax that keeps a fifth of its weight for all tokens alike."""
    e = jnp.exp(scores)
    return 0.8 * e / jnp.sum(e) + 0.2 / scores.shape[0]


task = ndl.SpikedSLR(tokens=2, snr=2, noise=0.1)
attentions = {"softmax": ndl.Softmax(), "sink": sink, "leaky": leaky}

# %% [markdown]
# Comparing attentions at one fixed penalty misleads, because each has its own best one. So each is asked at the
# penalties that suit it (`lam="optimal"`). The numbers in brackets are the errors of the last digits, as bounds: a
# difference that is smaller than the two errors together says nothing.

# %%
best = {name: ndl.predict(task, ndl.KeyValueAttention(a), ndl.Ridge(4, "optimal")) for name, a in attentions.items()}
for name, prediction in best.items():
    fixed = ndl.predict(task, ndl.KeyValueAttention(attentions[name]), ndl.Ridge(4, 1.0))
    key, value = prediction.resolved[2].penalties
    print(f"{name:<8} {fixed.excess_risk:.2f} at penalty 1, {prediction.excess_risk:.2f} at ({key:.1f}, {value:.1f})")
gap = best["sink"].excess_risk - best["softmax"].excess_risk
print("softmax is ahead of the sink by more than both errors:", gap.value > gap.error)

# %% [markdown]
# Training agrees within its standard errors. All three are trained on the same data, because the seed is the same.

# %%
for name, prediction in best.items():
    trained = ndl.simulate(*prediction.resolved, d=60, repeats=16)
    print(f"{name:<8} {prediction.excess_risk.value:.2f} predicted, {trained.excess_risk.value:.2f} trained at d = 60")

# %% [markdown]
# More data: at infinite data softmax is the best there can be on this task, because it is the posterior mean.

# %%
for name, activation in attentions.items():
    limit = ndl.predict(task, ndl.KeyValueAttention(activation), ndl.Population())
    print(f"{name:<8} {limit.excess_risk:.4f} at infinite data")
print(f"Bayes    {ndl.predict(task, None, ndl.BayesOptimal()).excess_risk:.4f}")

# %% [markdown]
# As a curve, at one fixed penalty for all. Read without the table above, it would say that the leaky softmax is the
# worst of the three; at penalties of its own it is level with softmax within the errors.

# %%
study = ndl.sweep(
    task,
    ndl.KeyValueAttention(ndl.Softmax()),
    ndl.Ridge(alpha=4, lam=0.3),
    over={"model.activation": list(attentions.values()), "learner.alpha": [2, 3, 4, 6, 8]},
)
ndl.plot(study, "excess_risk", x="learner.alpha", path="my-attention.png")
