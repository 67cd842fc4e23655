"""An experiment: settings and tasks, checks, the keys of its stages, and the author's code."""
