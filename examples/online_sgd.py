# %% [markdown]
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


limit = ndl.predict(task, model, sgd(400))
picture, axes = plt.subplots(1, 2, figsize=(8.0, 3.2), layout="constrained")
for axis, name in zip(axes, ("key", "value"), strict=True):
    path = limit.trajectory
    axis.plot(np.asarray(path.steps) / 400, path.overlaps[name].mean(axis=0), color="#1f5fa8", label="limit")
    for d, marker in ((50, "o"), (400, "s")):
        trained = ndl.simulate(task, model, sgd(d), d=d, repeats=16).trajectory
        mean, spread = trained.overlaps[name].mean(axis=0), trained.overlaps[name].std(axis=0, ddof=1) / 4
        shown = slice(0, None, 4)
        times = np.asarray(trained.steps) / d
        axis.errorbar(times[shown], mean[shown], spread[shown], fmt=marker, ms=4, label=f"SGD, d = {d}, 16 runs")
    axis.set(xlabel="time, steps over d", ylabel=f"overlap of the {name}")
axes[0].legend()
print(limit.status.name, limit.status.sentence)
picture.savefig("online-sgd.png")
