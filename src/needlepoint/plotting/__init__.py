"""Draws records, computes nothing but means and quantiles of what it is given."""
