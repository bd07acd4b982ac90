"""A Report goes in; table, plain, json, jsonl, csv or html comes out. The only importer of rich."""
