"""What is saved and what is read back."""
