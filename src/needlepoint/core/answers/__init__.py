"""What is computed from results.

`comparison` is theory beside training and `agreement` how far they agree; `doubts` withholds numbers whose error
exceeds them, `spectra` holds eigenvalues, and `trajectories` turns recorded runs into metrics.
"""
