# %% [markdown]
# # When the theory flags itself
#
# With a weak penalty and few samples there are many minima, and the replica-symmetric theory does not describe
# them. Such a prediction is returned with a flag. What does the flag mean?
#
# Below, softmax attention on two tokens is asked at 2 d samples with smaller and smaller penalties. The replicon
# measures whether a small disturbance of the minimum grows: below 1 it dies out, and the prediction is stable.

# %%
import needlepoint as ndl

task = ndl.SpikedSLR(tokens=2, snr=2, noise=0.1)
model = ndl.KeyValueAttention(ndl.Softmax())
for lam in (1.0, 0.3, 0.1, 0.03):
    found = ndl.predict(task, model, ndl.Ridge(alpha=2, lam=lam), tol=0.02, throw=False)
    print(f"penalty {lam:<5} excess risk {found.excess_risk.value:.1f}  {found.status.name:<10} stable: {found.stable}")

# %% [markdown]
# `UNSTABLE` says that the equations are solved, but that a check speaks against their answer; a note says which.
# Where the library has compared flagged predictions with training, `doubt` says how far off a metric may be, as a
# share of its value: training was closer nine times out of ten.

# %%
for note in found.notes:
    print("-", note)
print({name: f"{share:.0%}" for name, share in found.doubt.items()})

# %% [markdown]
# Training has no such trouble; it ends somewhere. That two starts, at random and at the teachers, end at different
# energies is what many minima look like.

# %%
trained = ndl.simulate(task, model, ndl.Ridge(alpha=2, lam=0.03), d=100, repeats=16)
apart = trained.starts_apart.value
print(f"trained excess risk {trained.excess_risk.value:.1f}, starts apart in {apart:.0%} of the repeats")
