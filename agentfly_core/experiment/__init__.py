"""An experiment: its settings, tasks, parts, keys, checks and the code that it names."""
