# %% [markdown] long
# # Softmax, linear and Bayes at infinite data
#
# What can each attention reach at best, against the signal-to-noise ratio, when it has all the data it wants?
#
# `Population()` gives the best key and value of an attention. On the spiked task softmax reaches the Bayes risk,
# because at the right key it is the posterior mean; linear attention decays only algebraically.

# %%
import needlepoint as ndl

study = ndl.sweep(
    ndl.SpikedSLR(tokens=4, snr=1.0),
    ndl.KeyValueAttention(ndl.Softmax()),
    ndl.Population(),
    over={
        "model.activation": [ndl.Softmax(), ndl.Softplus(), ndl.Linear(), ndl.Erf(offset=1.0)],
        "task.snr": [0.1, 0.2, 0.4, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32],
    },
    also=ndl.Simulation(d=30, repeats=16, samples=2000, at={"task.snr": [0.4, 2, 8, 32]}),
)
print(study)
ndl.plot(study, "excess_risk", x="task.snr", path="infinite-data.png")

# %% [markdown]
# The circles are Monte Carlo: fresh sequences in $\mathbb R^{30}$ at the predicted weights. At infinite data the
# theory is exact at every d, so the differences are noise.

# %%
task = ndl.SpikedSLR(tokens=4, snr=8.0)
bayes = ndl.predict(task, None, ndl.BayesOptimal())
softmax = ndl.predict(task, ndl.KeyValueAttention(ndl.Softmax()), ndl.Population())
print(f"softmax {softmax.excess_risk:.6f}, Bayes {bayes.excess_risk:.6f}")
print(f"best key of softmax: {softmax.overlaps.key:.4f} = sqrt(snr) = {ndl.softmax_key(task):.4f}")
print(f"no element-wise attention is below {ndl.elementwise_bound(task):.4f}")
