"""Text, JSON, YAML and files: how bytes are read, checked and written."""
