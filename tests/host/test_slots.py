"""The first two slots of a lane have memory from the start, the others get it at first use."""

import os

import numpy as np
from support.processes import run_with_shm

from shmbridge import Host, connect

MIB = 1 << 20


def resident(name):
    return os.stat(f"/dev/shm/shmb.{name}").st_blocks * 512


def test_slots_get_memory_when_questions_are_in_flight_and_keep_it(name):
    with Host(name) as host, host.start(lambda request: int(request["x"][0])):
        at_start = resident(name)
        assert 32 * MIB < at_start < 40 * MIB
        with connect(name) as runner:
            for i in range(20):
                assert runner.evaluate({"x": np.full(9, i)}) == i
            assert resident(name) == at_start
            tickets = [runner.send({"x": np.full(9, i)}) for i in range(8)]
            assert [runner.receive(ticket) for ticket in tickets] == list(range(8))
        assert resident(name) <= at_start + 6 * (MIB + (1 << 15)) + 6 * (3 << 15)


def test_kept_requests_get_further_slots_without_copies(name):
    kept = []
    with Host(name) as host, host.start(lambda request: kept.append(request["x"]) or 1):
        at_start = resident(name)
        with connect(name) as runner:
            for i in range(12):
                runner.evaluate({"x": np.full(9, i)})
        assert [int(array[0]) for array in kept] == list(range(12))
        assert sum(not array.flags.owndata for array in kept) >= 7
        assert resident(name) > at_start + 4 * MIB
        kept.clear()


def test_in_a_full_shm_questions_in_flight_share_the_slots_that_there_are(name):
    """In a mount namespace with a /dev/shm that a host of two slots fills."""
    code = """
        import sys, numpy as np, shmbridge
        kept = []
        def model(request):
            kept.append(request["x"])
            return np.full(8000, request["x"][0])
        with shmbridge.Host(sys.argv[1], channels=1) as host, host.start(model):
            with shmbridge.connect(sys.argv[1]) as runner, open("/dev/shm/rest", "wb") as rest:
                try:
                    while True:
                        rest.write(bytes(4096))
                        rest.flush()
                except OSError:
                    pass
                for _ in range(3):
                    tickets = [runner.send({"x": np.full(9, i)}) for i in range(8)]
                    print([int(runner.receive(ticket)[0]) for ticket in tickets])
                print([int(array[0]) for array in kept] == 3 * list(range(8)))
    """
    done = run_with_shm("size=3m", code, name)
    assert done.stdout.splitlines() == [str(list(range(8)))] * 3 + ["True"], done.stderr
