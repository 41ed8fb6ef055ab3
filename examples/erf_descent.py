# %% [markdown]
# # Erf attention finds its key
#
# Gradient descent of erf attention from random starts, and the square of (kappa, nu) in which it moves: the setting
# of arXiv 2410.01537.
#
# With key and value on the unit sphere, descent on the population risk closes exactly on five overlaps, at any
# dimension d. Theory steps these five numbers; training steps vectors in $\mathbb R^d$.

# %%
import matplotlib.pyplot as plt
import numpy as np

import needlepoint as ndl

d = 100
task = ndl.SpikedSLR(tokens=10, snr=d / 2, relevant_std=0.5**0.5, noise=0.1)
model = ndl.KeyValueAttention(ndl.Erf(scale=0.2), unit_norm=True)
descent = ndl.ProjectedDescent(lr=4e-3, steps=6000, start="manifold", record_every=100, d=d, runs=40)

theory = ndl.predict(task, model, descent)
training = ndl.simulate(task, model, descent, d=d, repeats=16)
print("theory  ", theory.trajectory.shares())
print("training", training.trajectory.shares())

# %%
ndl.plot(theory, training, path="erf-descent.png")

# %% [markdown]
# On the invariant manifold two overlaps are left: kappa, of the key with its teacher, and nu, of the value with its
# own. The arrows are the flow; the minima are the two corners where both are right (or both have the opposite sign,
# which is the same predictor), the squares are maxima, and the saddle in the middle is where random starts in a
# large dimension begin.

# %%
grid = np.linspace(-0.98, 0.98, 25)
kappa, nu = np.meshgrid(grid, grid)
d_kappa, d_nu = ndl.vector_field(task, model, kappa, nu)
picture, axis = plt.subplots(figsize=(4.6, 4.4), layout="constrained")
axis.streamplot(grid, grid, d_kappa, d_nu, color="#b0b0b0", linewidth=0.7, arrowsize=0.8)
for run in range(12):
    path = theory.trajectory.overlaps
    axis.plot(path["key"][run], path["value"][run], color="#1f5fa8", linewidth=1.2)
for point in ndl.fixed_points(task, model):
    marker = {"minimum": "o", "maximum": "s", "saddle": "X"}[point.kind]
    axis.plot(point.overlaps.key, point.overlaps.value, marker, color="#c8531c", markersize=8)
axis.set(xlabel="kappa, overlap of the key", ylabel="nu, overlap of the value", title="twelve runs in the flow")
axis.set(xticks=[-1, 0, 1], yticks=[-1, 0, 1])
picture.savefig("erf-square.png")

# %% [markdown]
# Started anywhere on the sphere, some runs end at another minimum, where the key reads the label and the value
# supplies a constant. Its risk is close to that of the oracle.

# %%
anywhere = ndl.predict(task, model, descent.replace(start="sphere", steps=20_000))
print(anywhere.trajectory.shares())
swapped, oracle = ndl.swapped_minimum(task, model), ndl.oracle_point(task, model)
print(f"excess risk of the swapped minimum {swapped.excess_risk:.4f}, of the oracle {oracle.excess_risk:.4f}")
