# %% [markdown] long
# # A phase diagram of erf attention
#
# Where in the plane of signal and offset does erf attention beat half the variance of the label?
#
# `refine` spends points where they matter: cells of the grid whose corners lie on both sides of the contour are
# halved, and halved again.

# %%
import numpy as np

import needlepoint as ndl

study = ndl.sweep(
    ndl.SpikedSLR(tokens=3, snr=1.0),
    ndl.KeyValueAttention(ndl.Erf(offset=1.0)),
    ndl.Population(),
    over={
        "task.snr": [float(f"{snr:.3g}") for snr in np.geomspace(0.1, 100, 13)],
        "model.activation.offset": [0.2, 0.5, 0.8, 1.1, 1.4, 1.7, 2.0],
    },
    refine=ndl.Refine("excess_risk", levels=2, level=0.5),
)
print(len(study), "points, of which", 13 * 7, "are those of the grid")
ndl.plot(study, "excess_risk", kind="map", x="task.snr", y="model.activation.offset", path="erf-phase-diagram.png")

# %% [markdown]
# Every point is a row of a table, with its status. `study.to_dataframe()` is for pandas, `study.to_csv("erf.csv")`
# for everything else.

# %%
table = study.to_dataframe()
print(table["status"].value_counts().to_dict())
