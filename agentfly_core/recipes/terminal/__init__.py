"""Tasks that change the files of a folder by shell commands."""
