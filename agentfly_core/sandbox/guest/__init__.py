"""The processes within the sandbox. Their code uses only the standard library."""
