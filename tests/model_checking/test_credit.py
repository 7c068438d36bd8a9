"""Slots as credit (channel.h, shm.c, host_channel.c) for two slots each way: timeouts, late
replies, kept views.

Checked in every state: no descriptor is overwritten before it was read, nobody writes a slot that
is the other side's, an honest runner always leaves the host a reply slot, and the runner is never
left without a slot for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from explore import explore

SLOTS, QUESTIONS = 2, 5
ALL = (1 << SLOTS) - 1


class Message(NamedTuple):
    sequence: int
    slot: int
    returns: int


class Runner(NamedTuple):
    free: int = ALL  # request slots
    sent: int = 0  # ring positions
    read: int = 0
    waiting: int = 0  # for the answer to this question; 0: none
    asked: int = 0
    advice: int = 0  # reply slots to give back with the next request


class Host(NamedTuple):
    read: int = 0
    sent: int = 0
    free: int = ALL  # reply slots
    ours: int = 0  # request slots that it has
    held: int = 0  # those whose bytes must not change
    open: tuple[tuple[int, int], ...] = ()  # questions without a reply: number, slot


class State(NamedTuple):
    runner: Runner = Runner()
    host: Host = Host()
    requests: tuple[Message, ...] = ()  # sent and not read yet
    replies: tuple[Message, ...] = ()
    wrong: str = ""


def slots(mask: int) -> list[int]:
    return [i for i in range(SLOTS) if mask >> i & 1]


def runner(s: State) -> Iterator[State]:
    r = s.runner
    if not r.waiting and r.asked < QUESTIONS:
        for slot in slots(r.free):
            wrong = "a request was overwritten" if len(s.requests) == SLOTS else ""
            if s.host.ours >> slot & 1 or slot in [m.slot for m in s.requests]:
                wrong = "the runner wrote to the host's slot"
            message = Message(r.asked + 1, slot, r.advice)
            after = r._replace(
                free=r.free & ~(1 << slot), waiting=r.asked + 1, asked=r.asked + 1, advice=0
            )
            yield s._replace(runner=after, requests=(*s.requests, message), wrong=wrong)
    if r.waiting:  # the deadline passes
        yield s._replace(runner=r._replace(waiting=0))
    if s.replies:
        m = s.replies[0]
        wrong = "a slot came back twice" if m.returns & r.free else ""
        after = r._replace(
            free=r.free | m.returns,
            advice=r.advice | 1 << m.slot,
            waiting=0 if m.sequence == r.waiting else r.waiting,  # else a late one
        )
        yield s._replace(runner=after, replies=s.replies[1:], wrong=wrong)


def host(s: State, copies_last: bool) -> Iterator[State]:
    h = s.host
    if s.requests:
        m = s.requests[0]
        copied = copies_last and bin(h.held).count("1") + 1 >= SLOTS
        after = h._replace(
            ours=h.ours | 1 << m.slot,
            held=h.held if copied else h.held | 1 << m.slot,
            free=h.free | m.returns,
            open=(*h.open, (m.sequence, m.slot)),
        )
        yield s._replace(
            host=after,
            requests=s.requests[1:],
            wrong="a reply slot came back twice" if h.free & m.returns else "",
        )
    for sequence, slot in h.open:
        others = tuple(q for q in h.open if q != (sequence, slot))
        busy = sum(1 << q[1] for q in others)
        for keep in (False, True):
            held = h.held if keep else h.held & ~(1 << slot)
            returns = h.ours & ~held & ~busy
            wrong = (
                "a reply was overwritten"
                if len(s.replies) == SLOTS
                else ""
                if h.free
                else "the host has no reply slot"
            )
            out = slots(h.free)[0] if h.free else 0
            after = h._replace(
                ours=h.ours & ~returns, held=held, open=others, free=h.free & ~(1 << out)
            )
            yield s._replace(
                host=after, replies=(*s.replies, Message(sequence, out, returns)), wrong=wrong
            )
    for slot in slots(h.held):  # the last view of it dies
        if slot not in [q[1] for q in h.open]:
            yield s._replace(host=h._replace(held=h.held & ~(1 << slot)))


def faults(copies_last: bool) -> set[str]:
    """What goes wrong in any of the reachable states."""
    seen, _ = explore(State(), lambda s: [] if s.wrong else [*runner(s), *host(s, copies_last)])
    found = {s.wrong for s in seen if s.wrong}
    for s in seen:
        idle = not (s.requests or s.replies or s.host.open)
        if idle and not s.runner.free:
            found.add("the runner has no slot, and none will come")
        if (
            bin(s.runner.free | s.host.ours).count("1")
            + len(s.requests)
            + sum(bin(m.returns).count("1") for m in s.replies)
            != SLOTS
        ):
            found.add("a slot was lost or doubled")
    return found


def test_credit_is_never_overdrawn_and_never_lost() -> None:
    assert faults(copies_last=True) == set()


def test_without_copies_of_the_last_slot_the_runner_starves() -> None:
    assert faults(copies_last=False) == {"the runner has no slot, and none will come"}
