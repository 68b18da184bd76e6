"""Whether a tick has nothing to do, told by a small file that the tick before it left. Only ever a hint.

It is asked before anything else of the program is loaded, so it loads next to nothing itself. A doubt of any kind is
"no": then the whole tick looks for itself.
"""

from __future__ import annotations

import os
import pwd
import stat
from zlib import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LONGEST = 3600.0  # seconds for which a hint is taken, whatever it says
SETTLED = 2.0  # a file that was changed within so many seconds may change again without a new time of change

_FORM = b"resumed: nothing is due 1"
_LIMIT = 1024 * 1024
_FORMATS = ("text", "json")
_PACKAGE = os.path.dirname(__file__)
_BOOT = "/proc/sys/kernel/random/boot_id"
_DOUBTS = (OSError, ValueError, LookupError)


def is_quiet(arguments: Sequence[str], environ: Mapping[str, str], now: float) -> bool:
    """Tell whether these arguments are a plain `tick` of which a hint says that nothing is due.

    Of a tick on a terminal people expect more than silence, so it is none.
    """
    try:
        config = _named_config(arguments, environ)
        return not os.isatty(2) and _holds(os.path.realpath(config), environ, now)
    except _DOUBTS:
        return False


def look(paths: Iterable[str]) -> dict[str, bytes | None]:
    """Return the face of each file, which changes with its content, and of each folder, which changes with its owner.

    A file of no bytes is as good as none; None stands for what cannot be looked at.
    """
    faces: dict[str, bytes | None] = {}
    for path in paths:
        try:
            faces[path] = _face(path)
        except _DOUBTS:
            faces[path] = None
    return faces


def leave(place: str, seen: Mapping[str, bytes | None], since: float, until: float, environ: Mapping[str, str]) -> None:
    """Leave a hint: until that moment (UTC seconds) nothing is due while all files are as `seen`.

    `place` is the real path of jobs.yaml. The files were looked at from `since` on. Nothing is left where one has
    changed since or just before, nor where there is no private place for it.
    """
    try:
        if any(_face(path) != face or _changed_at(path) > since - SETTLED for path, face in seen.items()):
            return
        pairs = [part for path, face in seen.items() for part in (os.fsencode(path), face or b"")]
        fields = [_FORM, _program(), os.fsencode(place), repr(since).encode(), repr(until).encode(), *pairs]
        body = b"\0".join(fields)
        path = _path(place, environ, make=True)
        beside = f"{path}.new"  # of two at once one may take a part of the other's, which its checksum tells
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(body + b"\0%08x" % crc32(body))
        os.replace(beside, path)
    except _DOUBTS:
        return


def _named_config(arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    rest, config = list(arguments), environ.get("RESUMED_CONFIG", "")
    while rest and rest[0] in ("--config", "--log-format"):
        option, value, *rest = rest
        if value.startswith("-") or (option == "--log-format" and value not in _FORMATS):
            raise ValueError("not as it should be, which the whole tick says")
        config = value if option == "--config" else config
    if rest != ["tick"] or not config:
        raise ValueError("no plain tick of a named file")
    return config


def _holds(place: str, environ: Mapping[str, str], now: float) -> bool:
    body, _, check = _read(_path(place, environ)).rpartition(b"\0")
    form, program, told, since, until, *pairs = body.split(b"\0")
    return (
        check == b"%08x" % crc32(body)
        and (form, program, told) == (_FORM, _program(), os.fsencode(place))
        and float(since) <= now < min(float(until), float(since) + LONGEST)
        and all(_face(os.fsdecode(path)) == face for path, face in zip(pairs[::2], pairs[1::2], strict=True))
    )


def _read(path: str) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or _is_strange(found):
            raise ValueError("no file of ours")
        return file.read(_LIMIT)


def _path(place: str, environ: Mapping[str, str], *, make: bool = False) -> str:
    """Return where the hint for a jobs.yaml lies: in a folder that nobody else may write to."""
    named = environ.get("CACHE_DIRECTORY", "").partition(":")[0]  # of systemd, which makes it
    folder = named or os.path.join(pwd.getpwuid(os.geteuid()).pw_dir, ".cache/resumed")
    if not os.path.isabs(folder):
        raise ValueError("no place")
    if make:
        for made in (os.path.dirname(folder), folder):
            if not os.path.isdir(made):
                os.mkdir(made, 0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or _is_strange(found):
        raise ValueError("no place of ours")
    return os.path.join(folder, place.replace("%", "%25").replace("/", "%2F"))


def _is_strange(found: os.stat_result) -> bool:
    return found.st_uid != os.geteuid() or bool(found.st_mode & 0o022)


def _face(path: str) -> bytes:
    found = _stat(path)
    if found is None:
        return b""
    if stat.S_ISDIR(found.st_mode):  # its times change with every lock
        return b"%d %d %d %d" % (found.st_dev, found.st_ino, found.st_mode, found.st_uid)
    return b"%d %d %d %d %d" % (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _changed_at(path: str) -> float:
    found = _stat(path)
    return max(found.st_mtime, found.st_ctime) if found and not stat.S_ISDIR(found.st_mode) else 0


def _stat(path: str) -> os.stat_result | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found if found.st_size else None


def _program() -> bytes:
    """Return what another version, or another boot, has otherwise: a loss of power may undo a time of change alone."""
    with open(_BOOT, "rb") as file:
        return b"%s %d %s" % (_face(__file__), os.stat(_PACKAGE).st_mtime_ns, file.read().strip())
