"""What concerns the process that computes: `caching` of compiled kernels, and refusal to compute in `forks`."""
