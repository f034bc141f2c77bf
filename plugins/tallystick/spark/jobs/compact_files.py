"""The job file of a compaction by Spark: `spark-submit compact_files.py --lake URI --until INSTANT`."""

from __future__ import annotations

from tallystick.spark.compacting import main

if __name__ == "__main__":
    main()
