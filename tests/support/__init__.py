"""Shared code of the tests; contains no tests."""
