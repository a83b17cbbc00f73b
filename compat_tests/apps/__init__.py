"""The applications under test, run as `python -m compat_tests.apps TOPOLOGY --config FILE`.

A topology's topics are named after the application: `<application_id>-in`, `-out`, ... so a config is all it takes.
"""

import logging
import sys

STATE = "client is "
"""What the log says before each new state of the client."""
STATUS = "status on demand: "
"""What the log says before the client's status, when SIGUSR1 has asked for it."""
ADDED, REMOVED = "stream thread added: ", "stream thread removed: "
"""What the log says before the name of a thread that came (SIGUSR2) or went (SIGHUP)."""
PAUSED, RESUMED = "processing is paused", "processing goes on"
"""What the log says once SIGTTOU has paused all sub-topologies, and SIGTTIN has had them go on."""


def begin_log() -> None:
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s.%(msecs)03d %(levelname)s %(threadName)s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
    )
