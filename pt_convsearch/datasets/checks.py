"""Placeholder to be filled."""

def check(folder):
    raise NotImplementedError
