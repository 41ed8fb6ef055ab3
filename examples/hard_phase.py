# %% [markdown]
# # Possible, but hard
#
# From how many samples on can the place be found at all, and from how many on by an algorithm?
#
# The Bayes-optimal predictor averages over all keys and values that fit the data. Its overlaps solve a pair of
# equations that may have two solutions: the one that message passing reaches from no knowledge, and the one that it
# would reach from a good start. Where the second is the better one and the first is still there, learning is
# possible but no known efficient algorithm does it.

# %%
import matplotlib.pyplot as plt

import needlepoint as ndl

task = ndl.SpikedSLR(tokens=5, snr=0.5, noise=0.01)
found = ndl.bayes_transition(task, 1.0, 2.8)
low, high = found.hard_phase
print(f"possible from alpha = {low:.2f}, reached by message passing from {high:.2f}")

# %%
alphas = [1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0, 2.1, 2.15, 2.25, 2.3, 2.4, 2.6]
scan = ndl.bayes_scan(task, alphas)
picture, axis = plt.subplots(figsize=(5.6, 3.6), layout="constrained")
axis.plot(alphas, [p.informed.excess_risk.value for p in scan], "s-", label="from a good start")
axis.plot(alphas, [p.uninformed.excess_risk.value for p in scan], "o-", label="from no knowledge")
axis.axvspan(low, high, color="#dddddd", label="hard phase")
axis.set(xlabel="alpha, samples over d", ylabel="excess risk", title="five tokens, snr 0.5")
axis.legend()
picture.savefig("hard-phase.png")
