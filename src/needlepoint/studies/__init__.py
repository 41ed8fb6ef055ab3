"""Studies: sweeps over any field of a question, kept in one file, on one machine or many."""
