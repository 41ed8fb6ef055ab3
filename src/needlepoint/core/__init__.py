"""The data types that the rest of the library speaks in. Nothing here imports JAX.

`specs` say what is computed (`kinds` check their fields, `lowering` prepares them for compiled kernels, `text` reads
and writes them); `dispatch` finds the function ("rule") for a combination of specs, `routes` one for a quantity within
it; `results` are what comes back, made of `estimates`, `overlaps` and a `status`; `answers` are computed from results.
`options` are what a rule is given, `errors` are raised, `symbols` is notation, `process` is about this process.
"""
