"""Run blocks of code, each a line of JSON on standard input, print `ran` after each, and then the values of some names.

In a process of its own, because Spark keeps its JVM, and because a page may be about another Spark than this project's.
"""

import json
import sys


def main() -> None:
    """Run the blocks in one namespace, until standard input ends."""
    names: dict = {"__name__": "page"}
    for line in sys.stdin:
        exec(compile(json.loads(line), "page", "exec"), names)
        print("\nran", flush=True)
    frames = {
        name: names[name].toArrow().to_pylist() for name in ("flights", "jfk", "flights_then")
    }
    values = {"spark": names["spark"].version, "counted": names["counted"], **frames}
    print("\n" + json.dumps(values, default=lambda at: at.isoformat()))
    names["spark"].stop()


if __name__ == "__main__":
    main()
