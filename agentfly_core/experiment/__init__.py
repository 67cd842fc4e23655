"""An experiment: its settings, tasks and parts, its checks, the keys of its stages, and the code
that it names.
"""
