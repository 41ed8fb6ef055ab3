# %% [markdown] long
# # Write your own activation
#
# Any function from the scores of a sequence to the weights of its tokens, written with `jax.numpy`, is an
# activation. The best key and value, and the risk, come from the function alone.
#
# The function is checked when it is named: one weight a score, finite, in double precision, and equivariant
# (permuting the tokens permutes the weights).

# %%
import jax.numpy as jnp

import needlepoint as ndl


@ndl.activation("sink_softmax")
def sink_softmax(scores):
    """Softmax at temperature 2, with a sink for what no token wants."""
    e = jnp.exp(scores / 2)
    return e / (1 + e.sum())


task = ndl.MaxSLR(tokens=3, snr=2)  # the relevant token is softly the argmax of k* . x
attentions = {
    "linear": ndl.Linear(),
    "erf": ndl.Erf(shift=None, offset=1),  # None: the library chooses the constant
    "sink": sink_softmax,
    "softmax": ndl.Softmax(),
}
best = {name: ndl.predict(task, ndl.KeyValueAttention(a), ndl.Population()) for name, a in attentions.items()}
for name, prediction in best.items():
    print(f"{name:<8} {prediction.excess_risk:.5f}")
print(f"Bayes    {ndl.predict(task, None, ndl.BayesOptimal()).excess_risk:.5f}")

# %% [markdown]
# Simulation knows it too, at the weights that the prediction chose:

# %%
sink = best["sink"]
measured = ndl.simulate(*sink.resolved, d=40, repeats=16, overlaps=sink.overlaps)
agreement = ndl.compare(sink, measured)
print(f"predicted {sink.risk.value:.3f}, measured {measured.risk.value:.3f}, |z| below 4: {abs(agreement.worst) < 4}")

# %% [markdown]
# And what is not an activation is refused with a sentence:

# %%
try:
    ndl.activation("first")(lambda scores: scores * jnp.arange(len(scores)))
except ndl.InvalidParameter as error:
    print(error)
