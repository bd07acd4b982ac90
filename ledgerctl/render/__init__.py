"""Turn a Report into table, plain, json, jsonl, csv or html. The only importer of rich."""

import sys

# Python refuses to print integers beyond 4,300 digits, and a whole Decimal128 has up to 6,145. An
# amount is printed exactly or the figure is worthless, so the limit goes, here and only here.
sys.set_int_max_str_digits(0)
