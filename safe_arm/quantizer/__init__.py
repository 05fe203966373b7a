"""The drop-in quantisers and the rules they add: annotate consumers, never factories."""
