"""Real transformers: what the theory says about weights that people have.

reading (files, families, one head at a time), heads (spectra beside their null), forward (hidden states in NumPy),
cutting (ranks, predicted and measured losses, writing back), probing (labels read from hidden states),
fixtures (models that tests use) and examples (tiny checkpoints).
"""
