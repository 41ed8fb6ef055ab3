# %% [markdown] long
# # The spectrum of what is learned
#
# Eigenvalues of trained query-key matrices under the law that theory predicts for them, from few sequences to many.
#
# With few sequences the learned matrix has a low rank and a bulk that the noise has spread; with many it comes
# close to the target. The share of eigenvalues that are exactly zero is part of the prediction.

# %%
import needlepoint as ndl

task = ndl.AttentionIndexed(tokens=2, target=ndl.Wishart(0.3), noise_var=0.2)
model = ndl.TiedAttention()
found = {}
for alpha in (0.1, 0.3, 1.0):
    learner = ndl.Ridge(alpha=alpha, lam=0.05)
    prediction = ndl.predict(task, model, learner)
    training = ndl.simulate(task, model, learner, d=80, repeats=4, samples=200)
    found[alpha] = prediction, training
    print(
        f"alpha {alpha:<4} zeros {prediction.spectrum.atom:.2f} (trained {1 - training.rank_fraction.value:.2f}),"
        f" largest {prediction.spectrum.edges.max():.1f} (trained {training.spectrum.eigenvalues.max():.1f}),"
        f" {prediction.status.name}"
    )

# %% [markdown]
# From few sequences:

# %%
ndl.plot(*found[0.1], path="learned-spectrum.png")

# %% [markdown]
# From many: a gap opens between small eigenvalues, which the noise makes, and those of the target. The bulk of
# small ones is narrow and high, and is cut off in the picture.

# %%
ndl.plot(*found[1.0], path="learned-spectrum-2.png")

# %% [markdown]
# A spectrum is a law that can be asked: quantiles, edges, density. So eigenvalues of your own can be held against
# it.

# %%
law = found[1.0][0].spectrum
print(law)
