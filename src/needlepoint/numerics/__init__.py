"""Mathematics that has never heard of attention."""
