"""A worker without Kafka: it does what its plan says, a JSON list of steps in its argument. Only Python's own library
is used, so that it starts quickly."""

import http.server
import json
import os
import signal
import socket
import sys
import threading
import time

STEPS = {}


def step(function):
    STEPS[function.__name__] = function
    return function


PLACE, _, PARENT, FD, *_ = os.environ["_MILESTONES_WORKER"].split()
LINK = socket.socket(fileno=int(FD))
ANSWERS = LINK.makefile("rb")


def tell(**message):
    LINK.sendall(json.dumps(message).encode() + b"\n")


@step
def settings(given=None):
    told = {"metrics_host": "127.0.0.1", "metrics_port": None, "log_level": "INFO", "log_format": "text"}
    tell(settings=told | {"close_timeout_ms": 25_000} | (given or {}))


@step
def go():
    """Wait for the parent's answer; at the end of the command, or of the parent, end."""
    answer = json.loads(ANSWERS.readline() or b"{}")
    if answer.get("end") or not answer:
        os._exit(0 if answer else 1)
    print("goes on", answer["go"], flush=True)


@step
def partitions(count):
    tell(partitions=count)


@step
def serve(answers):
    """Answer requests as `answers` says: by path the status and the body, or null for no answer at all."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if answers[self.path] is None:
                threading.Event().wait()
            status, body = answers[self.path]
            self.send_response(status)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tell(serves=server.server_port)


@step
def say(text, times=1):
    for _ in range(times):
        os.write(1, text.encode())


@step
def complain(text):
    os.write(2, text.encode())


@step
def ends_of_signals(also=""):
    """From now on end at a signal, with the code that `Streams.run` has for it."""

    def end(number, _):
        os.write(1, f"{PLACE} got {signal.Signals(number).name}\n".encode())
        if also:
            os.write(1, also.encode())
        os._exit(130 if number == signal.SIGINT else 0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


GOT = []


@step
def counts_signals(*numbers):
    """From now on only print these signals."""

    def note(number, _):
        os.write(1, f"{PLACE} got {signal.Signals(number).name}\n".encode())
        GOT.append(number)

    for number in numbers or (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)


@step
def dies_of_signals(number):
    """From now on die of the signal `number` at a SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), number))


@step
def wait_for_signal():
    while not GOT:
        time.sleep(0.01)
    GOT.clear()


@step
def signal_parent(number):
    os.kill(int(PARENT), number)


@step
def signal_itself(number):
    os.kill(os.getpid(), number)


@step
def wait():
    while True:
        signal.pause()


@step
def wait_for_parent():
    """Wait until the parent is gone, as a `ParentLink` does."""
    while ANSWERS.readline():
        pass
    os._exit(1)


@step
def leave_a_process_behind():
    """Start a process that keeps this worker's output open."""
    import subprocess

    left = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    os.write(1, f"left {left.pid}\n".encode())


@step
def end(code=0):
    os._exit(code)


for name, *arguments in json.loads(sys.argv[1]):
    STEPS[name](*arguments)
