"""Tasks: what a compiler is told, how it asks, and baselines."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.processes import printed

from shmbridge import Host
from shmbridge.errors import InvalidError, NoHostError, ShmbridgeError
from shmbridge.training import Corpus, Module, Task, Workers
from shmbridge.training._task import Compilations
from shmbridge.training.scores import text_size

TEXT = {"text": lambda path: float(path.read_text())}


@pytest.fixture
def words(corpus):
    """words(command, module): what a program finds in its command."""

    def run(command, module=corpus[0], url=None):
        said = []
        script = 'for word; do printf "%s\\n" "$word"; done'
        task = Task(
            ["sh", "-c", script, "sh", *command],
            scores={"x": lambda path: said.extend(path.read_text().splitlines()) or 0},
        )
        if "{flags}" not in command:
            task.words.remove("{flags}")
        outcome = task.run(module, url)
        assert outcome.ok, outcome
        return said

    return run


# ---- The command ----


def test_placeholders(words, corpus):
    module = Module("m", corpus[0].path, ("-Da b", "-O2"))
    said = words(["{module}", "-x{module}", "{folder}/y", "{flags}", "{url}", "{other}"], module)
    path = str(corpus[0].path)
    assert said[:2] == [path, f"-x{path}"] and said[2].endswith("/y")
    assert said[3:] == ["-Da b", "-O2", "", "{other}"]


def test_what_replaces_a_placeholder_is_not_searched_for_others(words, tmp_path):
    path = tmp_path / "{output}{folder}{url}.txt"
    module = Module("m", path, ("{output}{folder}{module}",))
    assert words(["{module}", "{flags}"], module) == [str(path), *module.flags]


def test_flags_follow_the_program_where_the_command_does_not_say(corpus):
    task = Task("echo {module} z", scores=TEXT)
    module = Module("m", corpus[0].path, ("-a", "b c"))
    assert f"echo -a 'b c' {module.path} z" in task.run(module).command


def test_a_command_as_a_text_is_split_like_a_shells(words):
    assert Task("echo 'a b' {module}").words == ["echo", "{flags}", "a b", "{module}"]


@pytest.mark.parametrize(
    "command, options, expected",
    [
        ("", {}, "expected a command"),
        ("no-such-program {module}", {}, "expected a program in .PATH, found no 'no-such-program'"),
        ("true x", {}, r"expected \{module\}"),
        ("true {module}", {"seconds": 0}, "more than 0"),
        ("true {module}", {"memory": -1}, "more than 0"),
        ("true {module}", {"scores": len}, "expected functions by name"),
        ("env cc {module}", {"llvm": "inline"}, "clang, .*without a wrapper.* found 'env'"),
    ],
)
def test_a_command_that_makes_no_sense_is_an_error(command, options, expected):
    with pytest.raises(InvalidError, match=expected):
        Task(command, **options)


def test_it_runs_in_its_work_folder_or_the_modules(sh, corpus, tmp_path):
    task = sh('pwd > "$2"; pwd >&2; touch stray "$TMPDIR/stray2"')
    outcome = task.run(corpus[0])
    assert "shmbridge-task-" in outcome.stderr and not Path(outcome.stderr.strip()).exists()
    (tmp_path / "there").mkdir()
    outcome = task.run(Module("m", corpus[0].path, folder=tmp_path / "there"))
    assert outcome.stderr.strip() == str(tmp_path / "there")
    assert os.listdir(tmp_path / "there") == ["stray"]


def test_it_has_the_trainers_variables_of_now(sh, corpus, monkeypatch):
    task = sh('echo "$COLOUR $SHMBRIDGE_URL" >&2')
    monkeypatch.setenv("COLOUR", "a \udcff b\nc")
    monkeypatch.delenv("SHMBRIDGE_URL", raising=False)
    assert task.run(corpus[0]).stderr == "a \ufffd b\nc \n"


def test_it_asks_as_long_as_the_trainer_lives(sh, corpus, name):
    with Host(name):
        asks = sh('echo "$SHMBRIDGE_URL" >&2').run(corpus[0], name).stderr
    assert "connect_timeout=1000000&deadline=inf" in asks


def test_it_gets_no_input_and_no_descriptors(sh, corpus):
    with open(os.devnull) as file:
        os.set_inheritable(file.fileno(), True)
        outcome = sh("cat >&2; ls /proc/self/fd | wc -l >&2").run(corpus[0])
    assert outcome.stderr.strip() == "4"  # with the one that ls reads


def test_without_an_output_in_the_command_what_it_prints_is_scored(corpus):
    assert Task("cat {module}", scores={"n": os.path.getsize}).run(corpus[0]).scores == {"n": 14}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "x", None])
def test_a_score_that_is_no_finite_number_is_no_score(corpus, value):
    outcome = Task("cat {module}", scores={"x": lambda _: value}).run(corpus[0])
    assert (outcome.kind, outcome.exit, outcome.scores) == ("no score", 0, {})


def test_a_score_that_raises_says_what(corpus):
    def score(path):
        raise KeyError("my own error")

    outcome = Task("cat {module}", scores={"x": score}).run(corpus[0])
    assert outcome.kind == "no score" and "my own error" in outcome.stderr


def test_time_and_memory_are_told(py, corpus):
    outcome = py(
        "taken = b'x' * (50 << 20); until = time.monotonic() + 0.3\nwhile time.monotonic() < "
        "until: pass"
    ).run(corpus[0])
    assert outcome.kind == "ok"
    assert outcome.seconds >= 0.3 and outcome.cpu >= 0.1 and outcome.memory > 50 << 20


def test_a_forked_process_compiles_too(corpus, python):
    code = """
        import multiprocessing, sys
        from shmbridge.training import Corpus
        from shmbridge.training import Task

        def compiled(path):
            return Task("cat {module}").run(Corpus.from_sources(path)[0]).kind

        before = compiled(sys.argv[1])  # so the parent has what starts compilers
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(before, *pool.map(compiled, sys.argv[1:]), compiled(sys.argv[1]))
    """
    assert python(code, *(module.path for module in corpus)).end() == (0, "ok ok ok ok ok")


# ---- Asking ----


def test_it_asks_under_its_label_and_its_time_does_not_run_meanwhile(py, corpus, name, in_thread):
    task = py("print(ask(3), file=sys.stderr)", seconds=3)
    with Host(name) as host:
        call = in_thread(task.run, corpus[0], host.url)
        for advice in range(3):
            request = host.receive(20)
            assert request.label == "a.txt"
            time.sleep(1.2)  # together they are beyond the limit
            request.reply(advice)
        outcome = call.result()
    assert (outcome.kind, outcome.stderr) == ("ok", "[0, 1, 2]\n")
    assert outcome.seconds < 3


def test_a_compiler_that_says_in_the_segment_that_it_waits_is_late(py, corpus, serve):
    task = py(
        """
        import mmap, struct
        runner = connect()
        runner.evaluate({"x": 1})
        name = os.environ["SHMBRIDGE_URL"].partition("://")[2].partition("?")[0]
        with open(f"/dev/shm/shmb.{name}", "r+b") as file:
            segment = mmap.mmap(file.fileno(), 0)
        channels, (offset, stride) = segment[40], struct.unpack_from("QQ", segment, 80)
        for channel in range(channels):  # no claim was accepted
            struct.pack_into("Q", segment, offset + channel * stride + 384, 0)
        time.sleep(1000)
        """,
        seconds=2,
    )
    with serve(lambda request: 0) as host:
        assert task.run(corpus[0], host.url).kind == "time limit"


def test_the_time_that_another_compiler_waits_is_not_this_ones(py, corpus, name, in_thread):
    task = py("ask() if module.endswith('b.txt') else time.sleep(1000)", seconds=30)
    with Host(name) as host:
        waiting = in_thread(task.run, corpus[1], host.url)
        request = host.receive(60)
        task.seconds = 0.5
        assert task.run(corpus[0], host.url).kind == "time limit"
        request.reply(0)
        assert waiting.result().ok


def test_the_url_can_be_a_word_of_the_command(corpus, name, in_thread):
    ask = "import sys, shmbridge; shmbridge.connect(sys.argv[2]).evaluate({'x': 1})"
    task = Task([sys.executable, "-P", "-c", ask, "{module}", "{url}"])
    with Host(name) as host:
        call = in_thread(task.run, corpus[1], host.url, "my-label")
        request = host.receive(20)
        assert request.label == "my-label"
        request.reply(0)
        assert call.result().ok


def test_an_odd_name_makes_a_label_that_a_url_can_hold(py, tmp_path, name, in_thread):
    module = Module("a?b&c=d%/ü" + "x" * 300, tmp_path / "m")
    with Host(name) as host:
        call = in_thread(py("ask()").run, module, host.url)
        request = host.receive(20)
        assert re.fullmatch(r"[\w./+-]{150}", request.label)
        request.reply(0)
        assert call.result().ok


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("sys.exit(3 * (asks and ask()[0]))", "advice"),
        ("asks and ask()[0] and os.kill(os.getpid(), signal.SIGSEGV)", "advice"),
        ("asks and ask()[0] and os.kill(os.getpid(), signal.SIGTERM)", "signal"),
        ("asks and ask(); sys.exit(3)", "exit status"),
    ],
)
def test_a_failure_is_the_advices_if_the_module_compiles_without(py, corpus, name, code, kind):
    task = py(f"asks = 'SHMBRIDGE_URL' in os.environ; {code}")
    with Host(name) as host, host.start(lambda request: 1):
        for _ in range(2):
            outcome = task.run(corpus[0], host.url)
            assert outcome.kind == kind and (outcome.exit or outcome.signal) and not outcome.ok
    workers = Workers(task, corpus.sampler(0))
    with Host(name) as host, workers, host.start(lambda request: 1):
        workers.open(host.url)
        assert workers.outcome(workers.begin(0)).kind == kind and workers.counts == {kind: 1}


def test_without_a_host_nothing_starts(py, corpus):
    with pytest.raises(NoHostError, match="expected a host at shm://nobody-is-here"):
        py("ask()").run(corpus[0], "shm://nobody-is-here")
    with pytest.raises(NoHostError, match="expected a host at shm://nobody-is-here"):
        py("ask()").run(corpus[0], "nobody-is-here?wait=block")


def test_a_host_that_does_not_receive_yet_is_waited_for(py, corpus, name, in_thread):
    with Host(name) as host:
        call = in_thread(py("ask()", seconds=2.5).run, corpus[0], host.url)
        time.sleep(3)  # as a trainer that learns
        host.receive(20).reply(0)
        assert call.result().ok


def test_a_host_that_dies_is_the_compilers_failure(py, corpus, name, in_thread):
    with Host(name) as host:
        call = in_thread(py("ask()").run, corpus[0], host.url)
        request = host.receive(20)
        assert request.label == "a.txt"
    outcome = call.result()
    assert (outcome.kind, outcome.exit) == ("exit status", 1) and "ClosedError" in outcome.stderr


# ---- A stock LLVM ----

CLANG = next((f"clang-{n}" for n in range(40, 14, -1) if shutil.which(f"clang-{n}")), None)
INLINES = {"llvm": "inline", "scores": {"text": text_size}}
needs_clang = pytest.mark.skipif(CLANG is None, reason="no clang")
SOURCE = """
int g(int);
static int f(int x) {
    int s = 0;
    for (int i = 0; i < x; i++) s += g(i) * x + g(s) + g(x);
    return s;
}
int a(int x) { return f(x) + f(x + 1); }
int b(int x) { return f(x) * f(x + 2); }
"""


@pytest.fixture
def source(tmp_path):
    (tmp_path / "f.c").write_text(SOURCE)
    return Corpus.from_sources(tmp_path / "f.c")[0]


@needs_clang
def test_a_stock_clang_asks_and_what_it_makes_is_scored(source, serve, name):
    task = Task(f"{CLANG} -Os -c {{module}} -o {{output}}", **INLINES)
    found, labels = {}, set()
    for advice in (0, 1):

        def model(request, advice=advice):
            labels.add(request.label)
            return advice

        with serve(model) as host:
            outcome = task.run(source, host.url)
            assert (outcome.kind, outcome.defaulted) == ("ok", 0)
            found[advice] = outcome.scores["text"]
            again = outcome.command.replace("mktemp -d", "echo .")
            done = printed(["bash", "-c", again], cwd=source.path.parent)
            assert done.returncode == 0, done.stderr
            assert text_size(source.path.parent / "output") == found[advice]
    assert found[0] < found[1] and labels == {"f.c"}
    assert task.run(source).kind == "ok"  # asks nobody


@needs_clang
def test_a_task_can_send_llvms_own_decision(source, serve, name):
    command = "clang-22 -Os -c {module} -o {output}"
    task = Task(command, include_default=True, **INLINES)
    with serve(lambda request: request["inlining_default"]) as host:
        outcome = task.run(source, host.url)
    assert outcome.scores == task.baseline(source)
    assert "--include-default -- " in outcome.command


@needs_clang
def test_a_limited_task_asks_about_the_first_decisions_and_llvm_makes_the_others(
    source, serve, name
):
    asked, sizes = [], {}
    with serve(lambda request: asked.append(request) or 1) as host:
        for limit in (1, 0):
            command = "clang-22 -Os -c {module} -o {output}"
            task = Task(command, limit=limit, defaults={"inline": 1}, **INLINES)
            outcome = task.run(source, host.url)
            assert (outcome.kind, outcome.defaulted, len(asked)) == ("ok", 0, 1)
            assert f"--limit {limit} -- " in outcome.command
            sizes[limit] = outcome.scores["text"]
    assert sizes[1] > sizes[0] == task.baseline(source)["text"]


@needs_clang
def test_a_task_has_default_advice_for_a_policy_that_fails(source, serve, name):
    def model(request):
        raise ValueError("no advice")

    sizes = []
    for advice in (0, 1):
        command = f"{CLANG} -O2 -c {{module}} -o {{output}}"
        task = Task(command, defaults={"inline": advice}, **INLINES)
        warned = "default advice for all its decisions: .*no advice"
        with serve(model) as host, pytest.warns(UserWarning, match=warned):
            outcome = task.run(source, host.url)
        assert outcome.ok and outcome.defaulted > 0
        sizes.append(outcome.scores["text"])
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"include_default": True}, "with llvm="),
        ({"defaults": {"inline": 1}}, "with llvm="),
        ({"limit": 0}, "with llvm="),
        ({"llvm": "inline", "limit": -1}, "limit=-1: expected 0"),
        ({"llvm": "inline", "defaults": {"inline": 2}}, "0 or 1"),
        ({"llvm": "inline", "defaults": {"unroll": 1}}, "unknown decision"),
    ],
)
@needs_clang
def test_a_task_refuses_options_that_do_not_fit(options, expected):
    with pytest.raises(InvalidError, match=expected):
        Task(f"{CLANG} -c {{module}}", **options)


@needs_clang
def test_bitcode_of_ml_compiler_opts_corpus_is_compiled(source, tmp_path):
    """As clang -Xclang -fembed-bitcode=all and mlgo's extract_ir leave it: -cc1 with neither input
    nor output."""
    subprocess.run(
        [CLANG, "-O1", "-c", "-emit-llvm", source.path, "-o", tmp_path / "f.bc"], check=True
    )
    (tmp_path / "corpus_description.json").write_text('{"modules": ["f"], "has_thinlto": false}')
    words = ["-cc1", "-triple", "x86_64-pc-linux-gnu", "-emit-obj", "-O2", "-split-dwarf-file", "x"]
    (tmp_path / "f.cmd").write_text("\0".join(words))
    task = Task(f"{CLANG} {{flags}} {{module}} -o {{output}}", scores={"text": text_size})
    outcome = task.run(Corpus.from_description(tmp_path)["f"])
    assert outcome.ok and outcome.scores["text"] > 50, outcome


# ---- Baselines ----


@pytest.fixture
def counting(sh, tmp_path):
    """counting(**options): a Task of which runs() tells how often it compiled."""
    log = tmp_path / "log"

    def make(extra="", **options):
        script = f'[ "$1" = -x ] && shift\necho run >> {log}; wc -c < "$1" > "$2" {extra}'
        return sh(script, scores=options.pop("scores", TEXT), **options)

    make.runs = lambda: len(log.read_text().splitlines()) if log.exists() else 0
    return make


def test_a_baseline_is_compiled_once_for_each_content_flags_and_folder(counting, corpus, tmp_path):
    task = counting()
    assert task.baseline(corpus[0]) == task.baseline(corpus[0]) == {"text": 14.0}
    assert counting.runs() == 1
    corpus[0].path.write_text("other text, and longer\n")
    assert task.baseline(corpus[0]) == {"text": 23.0}
    task.baseline(Module("a.txt", corpus[0].path, ("-x",)))
    task.baseline(Module("a.txt", corpus[0].path, folder=tmp_path))  # where it finds other headers
    assert counting.runs() == 4


def test_a_compilation_that_starts_while_all_end_is_ended(sh, corpus):
    compilations = Compilations(sh("sleep 1000"))
    compilations.end()
    compilation = compilations.start(corpus[0], None, "a")
    with compilation.job:
        assert compilation.finish().kind == "ended"


def test_a_compiler_that_fails_without_advice_has_no_baseline(counting, corpus):
    with pytest.raises(ShmbridgeError, match=r"a.txt: no baseline: exit status 3: .*oh no.*try W="):
        counting("; echo oh no >&2; exit 3").baseline(corpus[0])


# ---- Ctrl-C ----


def test_ctrl_c_ends_a_run(sh, corpus):
    task = sh("sleep 1000")
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        task.run(corpus[0])
