"""The vocabulary: estimates, overlaps, statuses, errors, specs, dispatch, results. No jax here."""
