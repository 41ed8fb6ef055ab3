"""The vocabulary, without JAX.

`specs` (with `kinds` of fields, `lowering` for kernels and `text` for reading and writing), `dispatch` from specs to
rules, `results` made of `estimates`, `overlaps` and `status`, and `answers` about them;
`options`, `errors`, `symbols`.
"""
