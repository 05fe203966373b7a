"""The page about the architectures."""


def page(rows):
    return ""
