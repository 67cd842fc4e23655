"""The code that an experiment names: which modules, what they say, and where two of them differ."""
