"""Runs a function in a process that kills itself: a fork of a server that has already imported the publishers.

A new Python for each kill would spend most of its time on imports.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from unittest.mock import patch

PUBLISHERS = [
    "support.call_publisher",
    "support.output_publisher",
    "support.postgres_publisher",
    "support.sql_catalog",
]
DEADLINE_S = 120


def killed(target: Callable[..., None], *arguments: object) -> None:
    """Run `target` in a process of its own, and check that it ended by SIGKILL.

    `target` is a function of a module, and `arguments` can be pickled. A process that ends otherwise, or not within
    DEADLINE_S, fails the test; its traceback is in the captured output.
    """
    context = multiprocessing.get_context("forkserver")
    assert isinstance(context, ForkServerContext)
    context.set_forkserver_preload(PUBLISHERS)
    process = context.Process(target=target, args=arguments)
    # The server starts with the first process, and imports the modules of this repository, too.
    with patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
        process.start()
    process.join(DEADLINE_S)
    try:
        assert process.exitcode == -signal.SIGKILL, f"ended with {process.exitcode}"
    finally:
        process.kill()
        process.join()
        process.close()
