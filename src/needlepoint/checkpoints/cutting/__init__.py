"""Ranks that can be cut: what each head loses at each rank, predicted and measured, before it is cut.

texts (sequences of tokens), whitening (best maps of lower rank), rotary_metric, losses (F and measured losses),
calibration (one pass over text), allotment (ranks over heads), effects (held-out text), writing, truncation.
"""
