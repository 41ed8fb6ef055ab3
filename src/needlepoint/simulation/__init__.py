"""The same questions answered by sampling and training at finite size. Never imports theory.

`simulating` has the function `simulate`, `minima` compares what several starts ended at, `starts` trains from many at
once; `location` and `indexed` train on their tasks, `fields` on those that say their fields.
"""
