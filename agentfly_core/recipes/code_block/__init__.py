"""Programs as Python code blocks."""
