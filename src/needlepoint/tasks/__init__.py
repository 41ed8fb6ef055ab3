"""Data laws without n or d: each samples itself at a given d and states its field law."""
