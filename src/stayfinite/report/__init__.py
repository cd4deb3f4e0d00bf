"""Drawing what others have measured and judged. Measures nothing, decides nothing, needs no torch."""
