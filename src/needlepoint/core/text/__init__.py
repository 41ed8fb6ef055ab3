"""Specs and results as text: `parsing` reads what a user types, `jsonio` writes JSON, `digits` writes
numbers with their errors, `showing` is how answers show themselves, `drawing` the
function that draws them."""
