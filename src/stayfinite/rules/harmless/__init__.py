"""What looks bad and is not."""
