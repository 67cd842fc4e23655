"""An experiment: its settings and tasks, checks of the settings, the keys under which the outputs
of its stages are stored, and digests of the author's code.
"""
