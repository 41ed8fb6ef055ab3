# %% [markdown] long
# # The best penalty of softmax attention
#
# How well does softmax attention do with four tokens, a signal-to-noise ratio of 3 and 6 d training sequences, and
# which ridge penalty should it have?
#
# The task is single-location regression: in every sequence one token is shifted along a hidden direction $k^*$, and
# the label is the component of that token along another hidden direction $v^*$. The model has to find the token and
# to read it. `Ridge(alpha, lam)` is training on `alpha * d` sequences with a penalty on the key and on the value.

# %%
import needlepoint as ndl

task = ndl.SpikedSLR(tokens=4, snr=3)
model = ndl.KeyValueAttention(ndl.Softmax())
best = ndl.predict(task, model, ndl.Ridge(alpha=6, lam="optimal"))
key, value = best.resolved[2].penalties
print(f"excess risk {best.excess_risk.value:.2f}, at penalties {key:.1f} on the key and {value:.1f} on the value")
print("stable:", best.stable)

# %% [markdown]
# With `lam="optimal"` the library looks for the pair of penalties with the least predicted risk; `best.resolved` is
# the question with these filled in, which `simulate` takes. The limit is one of large d, so we ask training at d =
# 60.

# %%
trained = ndl.simulate(*best.resolved, d=60, repeats=16)
print(f"predicted {best.excess_risk.value:.2f}, trained at d = 60: {trained.excess_risk.value:.2f}")

# %% [markdown]
# How much does the penalty matter? One common penalty for key and value costs little here, if it is the right one.
# The line is theory, the circles are training with their standard errors, and the lower panel is the difference of
# the two in standard errors. Theory is a limit: at d = 60 a part of the difference is the finite size. The star is
# a penalty so small that the theory flags its own answer, because there may be many minima.

# %%
study = ndl.sweep(
    task,
    model,
    ndl.Ridge(alpha=6, lam=1.0),
    over={"learner.lam": [0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2, 2.0]},
    also=ndl.Simulation(d=60, repeats=16, at={"learner.lam": [0.1, 0.4, 0.8, 2.0]}),
)
common = min(study.points(), key=lambda point: point.prediction.excess_risk)
print(f"best common penalty on this grid: {common.at['learner.lam']}, excess risk {common.prediction.excess_risk:.2f}")
ndl.plot(study, "excess_risk", path="best-penalty.png")

# %% [markdown]
# The Bayes-optimal predictor knows the law of the task and averages over everything that the data leave open: no
# method can do better. It needs some noise of the labels, without which its formulas are singular; a little stands
# for none.

# %%
bayes = ndl.predict(task.replace(noise=0.01), None, ndl.BayesOptimal(alpha=6))
print(f"Bayes-optimal: {bayes.excess_risk:.2f}")
