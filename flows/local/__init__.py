"""This machine: its servers, folders and terminal."""
