"""Text, JSON, YAML and hashes: strict reading and canonical writing."""
