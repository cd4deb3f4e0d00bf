"""Training data on disk -> rows in chunks: csv, tsv, json, jsonl, parquet, arrow, txt, aligned texts; without torch."""
