"""Predictors: they act on data and on fields."""
