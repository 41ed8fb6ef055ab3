"""Labels that depend on one token, read from hidden states by linear probes.

sentences (sets of our own, and a user's CSV file), features (pooled hidden states of every layer), intervals, probe.
"""
