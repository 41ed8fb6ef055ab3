"""Specs and results as text: `parsing` reads what a user types, `jsonio` writes JSON."""
