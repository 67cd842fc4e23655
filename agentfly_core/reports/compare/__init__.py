"""Compare runs: the settings in which they differ, and their success on held-out problems with
confidence intervals.
"""
