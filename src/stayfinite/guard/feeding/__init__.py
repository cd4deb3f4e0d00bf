"""The batches that go in: a position in any loader, and those that are to be passed over."""
