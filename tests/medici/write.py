"""Write the fixture anew with the npm package: `python -m tests.medici.write MONGODB_URI`."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from bson import json_util
from pymongo import MongoClient

from tests.foreign import MEDICI, planted_by_medici


def main(uri: str) -> None:
    """Let medici write into the database of this URI and keep its entries."""
    with tempfile.TemporaryDirectory() as place, MongoClient[dict[str, Any]](uri) as client:
        if not planted_by_medici(uri, Path(place)):
            raise SystemExit("Node and the package medici are needed")
        entries = client.get_default_database().medici_transactions.find().sort("_id", 1)
        kept = [
            json_util.dumps(one, json_options=json_util.CANONICAL_JSON_OPTIONS) for one in entries
        ]
    (MEDICI / "transactions.json").write_text("[\n" + ",\n".join(kept) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
