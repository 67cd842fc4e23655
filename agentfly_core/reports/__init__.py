"""Reports on episodes, on comparisons of runs, and on nights (nightly training runs)."""
