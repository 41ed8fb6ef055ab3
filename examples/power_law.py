# %% [markdown] long
# # Power-law targets
#
# When the eigenvalues of the target fall like a power, directions are found one after the other, and the error
# falls like a power of n/d.
#
# With one token the labels are linear in the hidden matrix. `learning_exponents` gives the powers, and a sweep the
# errors themselves. The exponents are for numbers of sequences between d and d squared and a large d, so that a
# line in a real size approaches them only in the middle.

# %%
import matplotlib.pyplot as plt
import numpy as np

import needlepoint as ndl

d = 10_000
task = ndl.AttentionIndexed(tokens=1, target=ndl.PowerLaw(1.0, d), noise_var=1.0)
exponents = ndl.learning_exponents(task)
print(f"error like (n/d)^{exponents.estimation_error:.3f}, directions like (n/d)^{exponents.recovered:.3f}")

# %%
ratios = [10.0, 30.0, 100.0, 300.0, 1000.0]  # n/d
errors, directions = [], []
for ratio in ratios:
    learner = ndl.Ridge(alpha=ratio / d, lam="optimal")
    prediction = ndl.predict(task, ndl.TiedAttention(), learner)
    errors.append(prediction.estimation_error.value)
    directions.append(len(ndl.recovered_directions(*prediction.resolved).target))
    print(f"n/d {ratio:>5.0f}  estimation error {errors[-1]:.4f}  directions found {directions[-1]}")

# %%
picture, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.2), layout="constrained")
x = np.array(ratios)
for axis, values, power, what in (
    (left, errors, exponents.estimation_error, "estimation error"),
    (right, directions, exponents.recovered, "directions found"),
):
    axis.loglog(x, values, "o-", label="theory at d = 10,000")
    axis.loglog(x, values[-1] * (x / x[-1]) ** power, "--", color="#888888", label=f"slope {power:.2f}")
    axis.set(xlabel="n/d", ylabel=what)
    axis.legend()
picture.savefig("power-law.png")
