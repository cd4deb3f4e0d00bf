"""What each module may compute in on a card: measured, planned, applied."""
