"""Combinations between whose runner and host there is something else."""

import contextlib
import threading

from stage import ROOM, Stage

from shmbridge.hosts._relay import Relay


class RelayStage(Stage):
    """A relay stands between: it begins when the runner is to open its URL, and ends with the
    host."""

    relay, room = None, {}

    def ready(self):
        if self.host is None and not self.away:
            self.start_host()
        if self.relay is None:
            room = {"request_bytes": ROOM, "advice_bytes": ROOM, **self.room}
            tap = Relay(self.host_url(), self.url, channels=2, **room)
            self.relay = tap, threading.Thread(target=tap.serve, daemon=True)
            self.relay[1].start()
        super().ready()

    def start_host(self, **room):
        self.end_relay()
        super().start_host(**room)

    def stop_host(self):
        super().stop_host()
        self.end_relay()

    def end(self):
        super().end()
        self.end_relay()

    def end_relay(self):
        if self.relay:
            tap, thread = self.relay
            tap.close()
            thread.join(20)
            assert not thread.is_alive(), "the relay's loop does not end when it is closed"
        self.relay = None

    @contextlib.contextmanager
    def elsewhere(self, url, **room):
        relay, self.relay = self.relay, None
        self.room = {name: size for name, size in room.items() if name.endswith("_bytes")}
        try:
            with super().elsewhere(url, **room):
                yield
        finally:
            self.end_relay()
            self.relay, self.room = relay, {}
