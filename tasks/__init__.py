"""One module a stage: ask the store, read, one call into the core, publish."""
