"""Are the error bars honest? Random questions to every rule, each answered a second time by another route.

    python -m benchmarks.honesty [check ...] [--points 50] [--seconds 600]

asks what has not been asked yet, appends a line a question to benchmarks/out/honesty/, and prints the table. A rule of
the dispatch table without a check here fails a test.
"""
