"""Read training data as chunks of rows: csv, tsv, json, jsonl, parquet, arrow, txt, aligned texts. Needs no torch."""
