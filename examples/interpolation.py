# %% [markdown] long
# # Where tied attention interpolates
#
# Up to how many sequences can tied attention fit every label, and what do the eigenvalues of its query-key matrix
# look like there?
#
# On the attention-indexed model a hidden matrix $S_0$ of rank d/2 makes the labels: each is the attention matrix of
# a sequence, with noise. The model learns $S = WW^\top/\sqrt{pd}$ from $n = \alpha d^2$ sequences, with a penalty
# on $W$.

# %%
import needlepoint as ndl

task = ndl.AttentionIndexed(tokens=2, target=ndl.Wishart(0.5), noise_var=0.5)
model = ndl.TiedAttention()
found = ndl.thresholds(task, model)
print(f"all labels can be fitted up to alpha = {found.interpolation:.4f}")

# %% [markdown]
# The threshold is that of a vanishing penalty. With a very small one the training loss is close to zero below it
# and grows above it, and the test error stays high around it, which a larger penalty cures. Lines are theory and
# circles training at d = 50. Where the line is broken the theory flags its own answer, and the marks say how: the
# equations are solved, but a check says that there are too many minima for them (UNSTABLE), or they are known only
# roughly (NOISE_LIMITED). Trust training there.

# %%
study = ndl.sweep(
    task,
    model,
    ndl.Ridge(alpha=0.15, lam=0.01),
    over={
        "learner.lam": [0.001, 0.1],
        "learner.alpha": [0.03, 0.05, 0.08, 0.11, 0.14, 0.17, 0.2, 0.3, 0.5, 1.0],
    },
    also=ndl.Simulation(d=50, repeats=4, samples=500, at={"learner.alpha": [0.05, 0.14, 0.3, 1.0]}),
)
ndl.plot(study, "risk", x="learner.alpha", path="interpolation.png")

# %%
ndl.plot(study, "train_loss", x="learner.alpha", path="interpolation-2.png")

# %% [markdown]
# At the threshold itself, with a penalty of 0.01: bars are eigenvalues of trained matrices, the line is the
# predicted law, and a share of the eigenvalues is exactly zero. The table compares the numbers.

# %%
at_threshold = ndl.Ridge(alpha=found.interpolation.value, lam=0.01)
prediction = ndl.predict(task, model, at_threshold)
training = ndl.simulate(task, model, at_threshold, d=60, repeats=4, samples=500)
print(f"share of zeros: {prediction.spectrum.atom:.2f} predicted, {1 - training.rank_fraction.value:.2f} trained")
print(f"status {prediction.status.name}, replicon {prediction.replicon:.2f} (stable below 1)")
ndl.plot(prediction, training, path="interpolation-3.png")
