"""The same questions answered by sampling and training at finite size. Never imports theory.

`simulating` is the verb, `minima` what several starts ended at; `location` and `indexed` train on their tasks.
"""
