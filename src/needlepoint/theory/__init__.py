"""Answers in the limit, with a numerical error. Never imports simulation."""
