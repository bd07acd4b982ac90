#!/usr/bin/env python3
"""The `ledgerctl` on PATH: as short as can be, since what an installer writes may import more.

pip before 24 writes a launcher that imports `re`, which takes longer than all of `--version`.
"""

from ledgerctl.__main__ import main

if __name__ == "__main__":
    main()
