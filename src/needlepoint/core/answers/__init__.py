"""What is asked of results: `comparison` with training, `doubts`, `spectra` and `trajectories`."""
