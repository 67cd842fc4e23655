"""Published directories: store, object storage, keys, locks."""
