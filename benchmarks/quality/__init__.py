"""How well quantisation keeps a float net: ideal, ours and stock, row by row."""
