"""Corrected passes, one per file, and the manager that puts them into the stock pipeline."""
