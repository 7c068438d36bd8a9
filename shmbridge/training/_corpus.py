"""Programs to train on: from sources, from a compile_commands.json, or in the format of
ml-compiler-opt."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shmbridge.errors import InvalidError, ShmbridgeError
from shmbridge.training._bitcode import compile_source
from shmbridge.training._commands import entry, without, words_in

# They name files of the build.
DELETED = ("-split-dwarf-file", "-split-dwarf-output", "-fthinlto-index")


@dataclass(frozen=True)
class Module:
    """One program to compile.

    Args:
        name: Its name, unique in a corpus.
        path: Its source or bitcode. It becomes absolute, because compilers run in another folder.
        flags: Its compiler arguments, such as `-I` and `-D`, without input and output.
        folder: The folder in which its compiler runs. None: the task's work folder.

    Raises:
        InvalidError: An argument contains a NUL character.
    """

    name: str
    path: Path
    flags: tuple[str, ...] = ()
    folder: Path | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path).absolute())
        if "\0" in "".join((self.name, str(self.path), *self.flags, str(self.folder))):
            raise InvalidError(f"module {self.name!r}: expected no NUL character, found one")


class Corpus(Sequence[Module]):
    """An ordered collection of modules with unique names.

    Args:
        modules: At least one.

    Raises:
        InvalidError: There is none, or two have the same name.
    """

    def __init__(self, modules: Iterable[Module]) -> None:
        self._modules = tuple(modules)
        self._by_name = {module.name: module for module in self._modules}
        if not self._modules:
            raise InvalidError("expected a module at least, found none")
        if len(self._by_name) < len(self._modules):
            names = Counter(module.name for module in self._modules)
            raise InvalidError(
                f"expected names that differ, found {names.most_common(1)[0][0]!r} twice"
            )

    @classmethod
    def from_sources(cls, *paths: str | os.PathLike[str], flags: Sequence[str] = ()) -> Corpus:
        """One module for each file, named by its path relative to their common folder.

        Args:
            paths: The files.
            flags: Arguments for each.

        Returns:
            The corpus.

        Raises:
            InvalidError: There are no paths, or one is not a file.
        """
        found = [Path(path).absolute() for path in paths]
        if missing := [path for path in found if not path.is_file()]:
            raise InvalidError(f"expected a file, found none: {missing[0]}")
        return cls(
            Module(name, path, words_in(flags))
            for name, path in zip(_names(found), found, strict=True)
        )

    @classmethod
    def from_compile_commands(
        cls, path: str | os.PathLike[str], *, flags: Sequence[str] | None = None
    ) -> Corpus:
        """Reads the output of CMake, Ninja, Meson or Bear: one module for each command, with the
        command's flags, compiled in the command's folder.

        Args:
            path: The compile_commands.json.
            flags: Flags for each module instead of its command's, which can load code into the
                compiler (-fplugin=).

        Returns:
            The corpus. A source with several commands gives several modules: NAME, NAME#2, ...

        Raises:
            InvalidError: The file has another format, or contains no command.
            OSError: It cannot be read.
        """
        entries = _read(path)
        try:
            read = [entry(command, flags) for command in entries]
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise InvalidError(
                f'{path}: expected a list of {{"directory", "file", "command" or "arguments"}}: '
                f"{error!r}"
            ) from None
        if not read:
            raise InvalidError(f"{path}: expected a command at least, found none")
        names = _names([path for path, _, _ in read])
        return cls(
            Module(name, path, words, folder)
            for name, (path, words, folder) in zip(names, read, strict=True)
        )

    @classmethod
    def from_description(
        cls, folder: str | os.PathLike[str], *, flags: Sequence[str] | None = None
    ) -> Corpus:
        """Reads ml-compiler-opt's format: corpus_description.json, and NAME.bc and NAME.cmd for
        each module.

        The flags are those of ml-compiler-opt: NAME.cmd without those that name files of the build,
        -x ir, and the flags of ThinLTO. Use `{flags} {module}` in a task's command, since -x ir
        stands before a module's path.

        Args:
            folder: The folder of these files.
            flags: Flags for each module instead of NAME.cmd or the description's, which can load
                code into the compiler (-fplugin=).

        Returns:
            The corpus.

        Raises:
            InvalidError: The description is invalid, or a name leaves the folder.
            OSError: A file cannot be read.
        """
        root = Path(folder).absolute()
        file = root / "corpus_description.json"
        said = _read(file)
        try:
            names, thinlto = words_in(said["modules"]), bool(said["has_thinlto"])
            override = words_in(said.get("global_command_override", ()))
        except (KeyError, TypeError, AttributeError, InvalidError) as error:
            raise InvalidError(
                f'{file}: expected {{"modules": [...], "has_thinlto": ...}}: {error!r}'
            ) from None
        if flags is not None:
            override = words_in(flags)
        if override == ("<UNSPECIFIED>",):
            raise InvalidError(
                f"{file}: expected flags in global_command_override, which is not filled in"
            )

        def module(name: str) -> Module:
            path = _inside(root, name)
            own = flags is not None or override
            words = override if own else os.fsdecode(Path(f"{path}.cmd").read_bytes()).split("\0")
            index = (f"-fthinlto-index={path}.thinlto.bc", "-mllvm", "-thinlto-assume-merged")
            kept = (*without(filter(None, words), DELETED), *(index if thinlto else ()))
            return Module(name, Path(f"{path}.bc"), (*kept, "-x", "ir"))

        return cls(map(module, names))

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, key: Any) -> Any:
        """A module by its index or its name; for a slice, a corpus."""
        if isinstance(key, slice):
            return Corpus(self._modules[key])
        if isinstance(key, str) and key not in self._by_name:
            raise InvalidError(f"expected a module of the corpus, found {key!r}")
        return self._by_name[key] if isinstance(key, str) else self._modules[key]

    def __repr__(self) -> str:
        return f"<Corpus of {len(self)} modules: {', '.join(list(self._by_name)[:3])}, ...>"

    def split(self, held_out: float = 0.2, seed: int = 0) -> tuple[Corpus, Corpus]:
        """Splits into a corpus to train on and a corpus to test on.

        The name of a module and the seed determine whether it is held out, so most modules stay in
        their part when you add others. All commands of one source ("a.c", "a.c#2") are in the same
        part.

        Args:
            held_out: The part of the sources to test on, between 0 and 1. Each corpus gets at least
                one.
            seed: Another seed gives another split.

        Returns:
            The modules to train on, and those held out, in this corpus's order.

        Raises:
            InvalidError: `held_out` is not between 0 and 1, or there is only one source.
        """
        sources = {_source(module): module for module in reversed(self)}
        if not 0 < held_out < 1 or len(sources) < 2:
            raise InvalidError(
                f"expected a part between 0 and 1 of two sources at least, found {held_out} of "
                f"{len(sources)}"
            )
        count = min(max(round(len(sources) * held_out), 1), len(sources) - 1)
        out = {_source(module) for module in _shuffled(sources.values(), f"split {seed}")[:count]}
        sides: tuple[list[Module], list[Module]] = [], []
        for module in self:
            sides[_source(module) in out].append(module)
        return Corpus(sides[0]), Corpus(sides[1])

    def to_bitcode(
        self,
        folder: str | os.PathLike[str],
        compiler: str | Sequence[str],
        *,
        num_workers: int | None = None,
    ) -> Corpus:
        """Compiles each module once to bitcode, which compiles several times faster than its
        source, and to the same object.

        The folder is in ml-compiler-opt's format, for `from_description`. It also contains
        NAME.d, the files that each module was made from: if you call this again, only new and
        changed modules are compiled.

        Args:
            folder: The folder, which is created if there is none.
            compiler: A clang and flags for all modules, such as "clang-22 -Oz": those that the
                passes need, such as the level, are recorded in the bitcode. A module's own flags
                precede them.
            num_workers: How many compilers run at once. None: one for each CPU of this process.

        Returns:
            The corpus of bitcode. Modules that do not compile are left out, with a warning.

        Raises:
            InvalidError: A name leaves the folder, or no module compiles; this may be no clang.
            OSError: A file cannot be written.
        """
        root = Path(folder).absolute()
        root.mkdir(parents=True, exist_ok=True)
        program, *flags = shlex.split(compiler) if isinstance(compiler, str) else compiler

        paths = [_inside(root, module.name) for module in self]

        def failure(module: Module, to: Path) -> str:
            try:
                words = [program, *module.flags, *flags]
                compile_source(words, module.path, to, module.folder or root)
            except ShmbridgeError as error:
                return f"{module.name}: {error}"
            return ""

        with ThreadPoolExecutor(num_workers or len(os.sched_getaffinity(0))) as pool:
            failures = list(pool.map(failure, self, paths))
        names = [module.name for module, why in zip(self, failures, strict=True) if not why]
        if failed := list(filter(None, failures)):
            said = f"{len(failed)} of {len(self)} modules do not compile: {'; '.join(failed[:3])}"
            if not names:
                raise InvalidError(said)
            warnings.warn(said, stacklevel=2)
        description = {"modules": names, "has_thinlto": False}
        (root / "corpus_description.json").write_text(json.dumps(description, indent=1))
        return Corpus.from_description(root)

    def sampler(self, seed: int) -> Sampler:
        """Endless modules, in an order determined by the seed.

        Args:
            seed: A seed gives the same order on every machine.

        Returns:
            The sampler.
        """
        return Sampler(self, seed)


class Sampler(Iterator[Module]):
    """Endless modules: all of the corpus in one order, then all in another one. `Corpus.sampler`
    creates it.

    Args:
        corpus: The corpus.
        seed: Determines the order.

    Attributes:
        corpus: The corpus.
    """

    def __init__(self, corpus: Corpus, seed: int) -> None:
        self.corpus, self._seed = corpus, seed
        self._epoch, self._left = 0, list[Module]()

    def __next__(self) -> Module:
        if not self._left:
            self._left = _shuffled(self.corpus, f"epoch {self._epoch} {self._seed}")
            self._epoch += 1
        return self._left.pop()


def _source(module: Module) -> str:
    """The name of its source, which may have several commands."""
    return module.name.partition("#")[0]


def _shuffled(modules: Iterable[Module], seed: str) -> list[Module]:
    """The same order with every Python: by hashes of the names."""
    return sorted(modules, key=lambda m: hashlib.sha256(f"{seed} {m.name}".encode()).digest())


def _inside(root: Path, name: str) -> Path:
    """The path of a module's files, without their endings."""
    path = Path(os.path.normpath(root / name))
    if root not in path.parents or "\0" in name:
        raise InvalidError(f"{root}: expected a name in this folder, found {name!r}")
    return path


def _read(path: str | os.PathLike[str]) -> Any:
    try:
        return json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidError(f"{path}: expected JSON: {error}") from None


def _names(paths: list[Path]) -> list[str]:
    """The paths relative to their common folder; a second one of the same path gets "#2"."""
    if len(paths) < 2:
        return [path.name for path in paths]
    shared = os.path.commonpath([path.parent for path in paths])
    counts: Counter[Path] = Counter()
    names = []
    for path in paths:
        counts[path] += 1
        again = f"#{counts[path]}" if counts[path] > 1 else ""
        names.append(f"{path.relative_to(shared)}{again}")
    return names
