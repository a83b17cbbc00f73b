"""The applications under test, run as `python -m compat_tests.apps TOPOLOGY --config FILE`.

A topology's topics are named after the application: `<application_id>-in`, `-out`, ... so a config is all it takes.
"""

STATE = "client is "
"""What the log says before each new state of the client."""
