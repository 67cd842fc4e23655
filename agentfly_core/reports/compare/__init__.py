"""Compare runs: the settings in which they differ, and the effect on success with confidence
intervals.
"""
