"""`async for request in host`: an event loop answers compilers."""

import asyncio
import contextlib
import threading

import pytest
from support.requests import evaluating

from shmbridge import Host, ShmbridgeError, connect

pytestmark = pytest.mark.timeout(60)  # instead of timing: what ought to end ends


def test_an_event_loop_answers_while_other_tasks_run(name, in_thread):
    async def answer(request, turn):
        await turn.wait()
        request.reply(int(request["x"]) + 1)

    async def serve(host):
        turn, tasks = asyncio.Event(), []
        async for request in host:
            tasks.append(asyncio.create_task(answer(request, turn)))
            if len(tasks) == 3:
                turn.set()
                await asyncio.gather(*tasks)
                return

    with Host(name) as host:
        asking = [evaluating(in_thread, host, {"x": i}) for i in range(3)]
        asyncio.run(serve(host))
        assert [call.result() for call in asking] == [1, 2, 3]


def test_a_cancelled_loop_ends_at_once_and_loses_no_request(name, in_thread):
    async def loop(host):
        async for request in host:
            request.reply(int(request["x"]))

    async def cancelled(host):
        task = asyncio.create_task(loop(host))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with Host(name) as host:

        def ask():
            with connect(name) as runner:
                return [runner.evaluate({"x": i}) for i in range(500)]

        asking = in_thread(ask)
        while asking.is_alive():
            asyncio.run(cancelled(host))
        assert asking.result() == list(range(500))


def test_closing_or_idleness_ends_the_loop(name, new_name):
    async def loop(host):
        async for _ in host:
            pass

    async def closing(host):
        task = asyncio.create_task(loop(host))
        await asyncio.sleep(0.02)
        host.close()
        await task

    asyncio.run(closing(Host(name)))
    with Host(new_name(), until_idle=0.1) as host:
        asyncio.run(loop(host))


def test_a_forgotten_request_is_reported_while_others_flow(name, in_thread, caplog):
    over, kept = threading.Event(), []

    def ask():
        with connect(name) as runner:
            while not over.is_set():
                runner.evaluate({"x": 1})

    async def serve(host):
        async for request in host:
            if "y" in request:
                kept.append(request)
            else:
                request.reply(1)
            if caplog.records:
                over.set()
                return

    with Host(name) as host:
        asking = in_thread(ask)
        forgotten = evaluating(in_thread, host, {"y": 1})
        asyncio.run(serve(host))
        kept.clear()  # its runner gets an error
        host.close()
    for call in (asking, forgotten):
        with contextlib.suppress(ShmbridgeError):
            call.result()
    assert "no reply for a second" in caplog.text
