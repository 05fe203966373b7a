"""Facts about float graphs, and small edits of them."""
