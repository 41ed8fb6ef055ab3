"""What is computed from results.

`comparison` sets theory beside training, `doubts` withholds numbers whose error exceeds them, `spectra` holds
eigenvalues, and `trajectories` turns recorded runs into metrics.
"""
