"""Hidden states from the weights that were read: a small forward pass in NumPy.

tokens (text to numbers), layers (norms and activations), states (what a layer shows of its attention), model (layer by
layer), encoder (BERT-like) and decoder (LLaMA-like), models (which one a checkpoint has).
"""
