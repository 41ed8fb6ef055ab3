# %% [markdown] long
# # Online SGD against its limit
#
# Stochastic gradient descent sees every sequence once. With a step size of order 1/d its overlaps follow a
# deterministic path as d grows.
#
# For attention with free norms `predict(..., OnlineSGD(...))` is that limit; `simulate` runs SGD with vectors. The
# limit has a term that gradient flow does not have: the noise of single steps makes the norms grow.

# %%
import matplotlib.pyplot as plt
import numpy as np

import needlepoint as ndl

task = ndl.SpikedSLR(tokens=3, snr=4.0, noise=0.1)
model = ndl.KeyValueAttention(ndl.Softmax())
start = ndl.Overlaps(key=0.3, value=0.3, key_sq=0.25, value_sq=0.25)
time, eta = 20.0, 0.3  # time is steps/d; eta the step size on half the squared error


def sgd(d):
    steps = int(time * d)
    return ndl.OnlineSGD(eta / (2 * d), steps, 1, start, record_every=steps // 40, d=d, runs=1)


limit = ndl.predict(task, model, sgd(400)).trajectory
trained = {d: ndl.simulate(task, model, sgd(d), d=d, repeats=16).trajectory for d in (50, 400)}

# %% [markdown]
# Lines are the limit, points means over 16 runs with their standard errors.

# %%
picture, axes = plt.subplots(1, 2, figsize=(8.0, 3.2), layout="constrained")
for axis, name in zip(axes, ("key", "value"), strict=True):
    axis.plot(np.asarray(limit.steps) / 400, limit.overlaps[name].mean(axis=0), color="#1f5fa8", label="limit")
    for (d, path), marker, colour in zip(trained.items(), "os", ("#c8531c", "#2a8a57"), strict=True):
        runs = path.overlaps[name][:, ::4]
        mean, error = runs.mean(axis=0), runs.std(axis=0, ddof=1) / len(runs) ** 0.5
        times = np.asarray(path.steps)[::4] / d
        axis.errorbar(times, mean, error, fmt=marker, color=colour, mfc="white", ms=5, label=f"SGD, d = {d}")
    axis.set(xlabel="time, steps over d", ylabel=f"overlap of the {name}")
axes[0].legend()
picture.savefig("online-sgd.png")

# %% [markdown]
# How far off is a single size? The last record, in numbers:

# %%
for d, path in trained.items():
    gap = path.overlaps["key"][:, -1] - limit.overlaps["key"][0, -1]
    print(f"d = {d:<4} key {gap.mean():+.2f} off the limit, spread of a run {gap.std(ddof=1):.2f}")
