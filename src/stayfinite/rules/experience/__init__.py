"""What runs like this one had: causes weighed by the labelled public cases, for a text that names nothing better."""
