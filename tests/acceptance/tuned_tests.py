"""Tests of programs that were made smaller: python tests/acceptance/tuned_tests.py NAME LIBRARY

Each calls the program as a shared library.
"""

from __future__ import annotations

import ctypes
import json
import sys
import zlib
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_void_p

# 30 kB that compress, but not to nothing.
TEXT = b"".join(b"%d squared is %d; " % (i, i * i) for i in range(1200))


def zopfli(program: ctypes.CDLL) -> None:
    """zlib reads what it compresses, in each of its formats."""
    settings = (c_int * 6)()
    program.ZopfliInitOptions(byref(settings))
    for kind, wbits in enumerate((31, 15, -15)):
        out, size = c_void_p(), c_size_t()
        program.ZopfliCompress(
            byref(settings), kind, TEXT, c_size_t(len(TEXT)), byref(out), byref(size)
        )
        packed = ctypes.string_at(out, size.value)
        assert len(packed) < len(TEXT) / 2 and zlib.decompress(packed, wbits) == TEXT


def lz4(program: ctypes.CDLL) -> None:
    """A round trip by each compressor."""
    room = 2 * len(TEXT)
    out, back = ctypes.create_string_buffer(room), ctypes.create_string_buffer(room)
    ways = (
        program.LZ4_compress_default(TEXT, out, len(TEXT), room),
        *(program.LZ4_compress_HC(TEXT, out, len(TEXT), room, level) for level in (3, 9, 12)),
    )
    for size in ways:
        assert 0 < size < len(TEXT)
    assert program.LZ4_decompress_safe(out, back, ways[-1], room) == len(TEXT)
    assert back.raw[: len(TEXT)] == TEXT
    program.LZ4F_compressFrame.restype = c_size_t
    size = program.LZ4F_compressFrame(out, c_size_t(room), TEXT, c_size_t(len(TEXT)), None)
    assert out.raw[:4] == b"\x04\x22\x4d\x18" and size < len(TEXT)


def cjson(program: ctypes.CDLL) -> None:
    """It prints what it has read, and refuses what is no JSON."""
    program.cJSON_Parse.restype = program.cJSON_PrintUnformatted.restype = c_void_p
    value = {"a": [1, -2.5, 1e100, True, None, '\u20ac "\\\n'], "b": {"c": {}, "d": []}}
    read = c_void_p(program.cJSON_Parse(json.dumps(value).encode()))
    assert json.loads(ctypes.string_at(program.cJSON_PrintUnformatted(read))) == value
    assert program.cJSON_Compare(read, read, 1)
    assert not program.cJSON_Parse(b'{"a": [1, 2}')


def picosat(program: ctypes.CDLL) -> None:
    """Seven pigeons fit into seven holes, and not into six."""
    program.picosat_init.restype = c_void_p
    for holes, expected in (7, 10), (6, 20):
        solver = c_void_p(program.picosat_init())
        at = [[1 + pigeon * holes + hole for hole in range(holes)] for pigeon in range(7)]
        pairs = [(a, b) for a in range(7) for b in range(a)]
        clauses = at + [[-at[a][hole], -at[b][hole]] for a, b in pairs for hole in range(holes)]
        for number in (number for clause in clauses for number in (*clause, 0)):
            program.picosat_add(solver, number)
        assert program.picosat_sat(solver, -1) == expected
        if expected == 10:
            for clause in clauses:
                assert any(program.picosat_deref(solver, number) == 1 for number in clause)
        program.picosat_reset(solver)


def brotli(program: ctypes.CDLL) -> None:
    """A round trip at each quality."""
    room = 2 * len(TEXT)
    for quality in range(12):
        out, back = ctypes.create_string_buffer(room), ctypes.create_string_buffer(room)
        size, whole = c_size_t(room), c_size_t(room)
        assert program.BrotliEncoderCompress(
            quality, 22, 0, c_size_t(len(TEXT)), TEXT, byref(size), out
        )
        assert size.value < len(TEXT)
        assert program.BrotliDecoderDecompress(size, out, byref(whole), back) == 1
        assert back.raw[: whole.value] == TEXT


def lodepng(program: ctypes.CDLL) -> None:
    """A round trip of an image, and an error for a broken one."""
    wide, high = 100, 75
    out, size = POINTER(c_ubyte)(), c_size_t()
    pixels = TEXT[: wide * high * 3]
    assert len(pixels) == wide * high * 3
    assert not program.lodepng_encode_memory(byref(out), byref(size), pixels, wide, high, 2, 8)
    png = bytearray(out[: size.value])
    back, w, h = POINTER(c_ubyte)(), c_uint(), c_uint()
    read = (byref(back), byref(w), byref(h))
    assert not program.lodepng_decode_memory(*read, bytes(png), size, 2, 8)
    assert (w.value, h.value) == (wide, high) and bytes(back[: len(pixels)]) == pixels
    png[60] ^= 1
    assert program.lodepng_decode_memory(*read, bytes(png), size, 2, 8)


class JSValue(ctypes.Structure):
    """What JS_Eval returns on machines of 64 bits."""

    _fields_ = (("value", c_void_p), ("tag", ctypes.c_int64))


def quickjs(program: ctypes.CDLL) -> None:
    """A script with closures, regular expressions, sorting, JSON and big integers."""
    script = b"""
        const fib = n => n < 2 ? n : fib(n - 1) + fib(n - 2);
        const words = 'the quick brown fox'.replace(/([aeiou])/g, '<$1>').split(' ').sort();
        const text = JSON.stringify({a: [fib(15), ...words], b: (2n ** 100n).toString()});
        const wanted = '{"a":[610,"br<o>wn","f<o>x","q<u><i>ck","th<e>"],' +
            '"b":"1267650600228229401496703205376"}';
        text === wanted ? 42 : 1
    """
    program.JS_NewRuntime.restype = program.JS_NewContext.restype = c_void_p
    program.JS_Eval.restype = JSValue
    context = c_void_p(program.JS_NewContext(c_void_p(program.JS_NewRuntime())))
    value = program.JS_Eval(context, script, c_size_t(len(script)), b"test.js", 0)
    number = c_int()
    assert not program.JS_ToInt32(context, byref(number), value) and number.value == 42


def sqlite(program: ctypes.CDLL) -> None:
    """Tables, an index, a join, a recursive query and an integrity check."""
    script = b"""
        create table a(x integer primary key, y text); create table b(x integer, z real);
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000)
            insert into a select i, printf('%05d', i * 7919 % 2000) from n;
        insert into b select x, x / 3.0 from a; create index i on b(x);
        delete from a where x % 5 = 0; update b set z = z + 1 where x < 10;
    """
    query = b"select count(*), sum(b.z), max(a.y) from a join b using (x) where a.y like '%1'"
    rows: list[list[bytes | None]] = []
    row = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, POINTER(c_char_p), POINTER(c_char_p))

    def keep(_: object, count: int, values: list[bytes | None], __: object) -> int:
        rows.append(values[:count])
        return 0

    base, each = c_void_p(), row(keep)
    assert not program.sqlite3_open(b":memory:", byref(base))
    for text in script, query, b"pragma integrity_check":
        assert not program.sqlite3_exec(base, text, each, None, None)
    import sqlite3

    ours = sqlite3.connect(":memory:")
    ours.executescript(script.decode())
    count, total, most = ours.execute(query.decode()).fetchone()
    (found,), (whole,) = rows[:1], rows[1:]
    assert [int(found[0] or 0), (found[2] or b"").decode()] == [count, most]
    assert abs(float(found[1] or 0) - total) < 1e-6 and whole == [b"ok"]


TESTS: dict[str, Callable[[ctypes.CDLL], None]] = {
    test.__name__: test for test in (zopfli, lz4, cjson, picosat, brotli, lodepng, quickjs, sqlite)
}


if __name__ == "__main__":
    TESTS[sys.argv[1]](ctypes.CDLL(sys.argv[2]))
