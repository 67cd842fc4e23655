"""Planning that is measured: plans of tools and sub-tasks, after TPTU (arXiv 2308.03427)."""
