"""The page that shows a run: one HTML file that needs nothing else. Draws what it is given."""
