# %% [markdown]
# # What sequences of several lengths cost
#
# One key and one value for all lengths, or one pair for each length: how much is lost by sharing?
#
# Softmax loses nothing, since its best key does not depend on the length. Element-wise attentions do lose, because
# the right threshold for a short sequence is the wrong one for a long one.

# %%
import matplotlib.pyplot as plt

import needlepoint as ndl

lengths = {2: 0.5, 20: 0.5}
snrs = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
attentions = {"softmax": ndl.Softmax(), "linear": ndl.Linear(), "erf": ndl.Erf(offset=1.0)}
costs = {
    name: [ndl.length_cost(ndl.SpikedSLR(lengths, snr=snr), ndl.KeyValueAttention(a)) for snr in snrs]
    for name, a in attentions.items()
}
for name, found in costs.items():
    worst = max(found, key=lambda cost: cost.cost)
    print(f"{name:<8} largest cost {abs(worst.cost.value):.4f}, of a risk of {worst.shared.value:.4f}")

# %%
picture, axis = plt.subplots(figsize=(5.6, 3.4), layout="constrained")
for (name, found), marker in zip(costs.items(), "os^", strict=True):
    axis.plot(snrs, [cost.cost.value for cost in found], marker=marker, label=name)
axis.set(xscale="log", xlabel="snr", ylabel="cost of sharing (excess risk)", title="lengths 2 and 20, half each")
axis.legend()
picture.savefig("length-cost.png")
