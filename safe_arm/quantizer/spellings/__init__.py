"""Operators that no annotator knows, written with operators that one does."""
