# %% [markdown]
# # A study that resumes
#
# A sweep with `store=` keeps every finished point in one file. Stopped and started again, it computes only what is
# missing; with more values it reuses what is there.

# %%
import needlepoint as ndl

question = ndl.MaxSLR(tokens=2, snr=1.0), ndl.KeyValueAttention(ndl.Softmax()), ndl.Population()
tallies = []  # `report` is called with a tally, of what is done and what was there already, as points are finished

with ndl.sweep(*question, over={"task.snr": [0.5, 1.0, 2.0]}, store="max.sqlite", report=tallies.append):
    print(f"first run: {tallies[-1].done} points, {tallies[-1].reused} from the store")
with ndl.sweep(
    *question, over={"task.snr": [0.5, 1.0, 2.0, 4.0, 8.0]}, store="max.sqlite", report=tallies.append
) as study:
    print(f"second run: {tallies[-1].done} points, {tallies[-1].reused} from the store")
    study.to_csv("max.csv")

# %% [markdown]
# A store can be opened later, or on another machine, and asked for anything: points, tables, pictures. A point that
# did not converge stays in it, with the reason.

# %%
with ndl.open_study("max.sqlite", readonly=True) as study:
    for point in study.points():
        answer = point.prediction
        print(f"snr {point.at['task.snr']:<4} excess risk {answer.excess_risk:.4f} {answer.status.name}")
    picture = ndl.plot(study, "excess_risk", x="task.snr", path="resume.png")
picture  # noqa: B018 (a notebook shows it)

# %% [markdown]
# The same from a shell, with a file that describes the study and all cores of the machine:
#
# ```sh
# needlepoint sweep examples/softmax-snr.toml --executor processes --store snr.sqlite --plot snr.png
# needlepoint study show snr.sqlite
# ```
