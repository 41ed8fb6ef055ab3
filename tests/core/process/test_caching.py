"""Compiled kernels on disk: kept, bounded, and harmless where they are damaged or not allowed."""

import os
import subprocess
import sys
import time
import zlib

import pytest

import needlepoint as ndl
from needlepoint.core.process import caching

COMPUTE = """
import sys, warnings
warnings.simplefilter("error")
import jax, jax.numpy as jnp
jax.jit(lambda x: x + 1)(jnp.ones(3))  # the first compilation is before the cache is switched on
import needlepoint as ndl
folder = ndl.use_cache(*sys.argv[1:])
print(folder)
print(float(jax.jit(lambda x: jnp.sin(x).sum())(jnp.ones(3))))
"""


def clean(**more):
    """The environment without the cache of the caller."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAX_COMP", "JAX_PERS", "NEEDLE"))
    }
    return {**kept, **more}


def start(*args, **environment):
    command = [sys.executable, "-c", COMPUTE, *map(str, args)]
    return subprocess.Popen(
        command, env=clean(**environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process, said=""):
    """Folder and value of a process that says on standard error one sentence that begins with `said`, or nothing."""
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert err.startswith(said)
    assert err.count("\n") == bool(said), err
    folder, value = out.split()
    return folder, float(value)


def kernels(folder):
    return sorted(folder.glob("*/*-cache"))


def test_kernels_are_kept_also_when_it_is_switched_on_late(tmp_path):
    folder, value = finish(start(tmp_path))
    assert value == pytest.approx(3 * 0.8414709848, rel=1e-6)
    assert folder.startswith(str(tmp_path / "jax-"))
    first = kernels(tmp_path)
    assert first
    before = {path: path.stat().st_mtime_ns for path in first}
    # damage: one kernel cut short, as by a process that was killed, one empty
    first[0].write_bytes(first[0].read_bytes()[:-7])
    assert finish(start(tmp_path))[1] == value
    assert kernels(tmp_path) == first
    assert first[0].stat().st_mtime_ns != before[first[0]]
    assert zlib.decompress(first[0].read_bytes())


def test_two_at_once_and_a_folder_from_the_environment(tmp_path):
    running = [start(NEEDLEPOINT_CACHE=str(tmp_path)) for _ in range(3)]
    ends = [finish(process) for process in running]
    assert len({value for _, value in ends}) == 1
    assert all(folder.startswith(str(tmp_path)) for folder, _ in ends)
    assert all(zlib.decompress(path.read_bytes()) for path in kernels(tmp_path))


@pytest.mark.parametrize(("value", "said"), [("OFF", ""), (os.devnull, "needlepoint: compiled kernels are not kept: ")])
def test_refused_or_impossible_is_no_cache_and_no_error(value, said):
    assert finish(start(NEEDLEPOINT_CACHE=value), said)[0] == "None"


def test_a_folder_that_may_only_be_read_is_said_once(tmp_path, monkeypatch, capsys):
    """The permission is asked of the system, which grants root everything; here it says no."""
    monkeypatch.setattr(caching, "_of_jax", lambda: None)
    monkeypatch.setattr(caching, "_tell_jax", lambda place: None)
    monkeypatch.setattr(caching.os, "access", lambda path, mode: not mode & os.W_OK)
    folders = {caching.use_cache(tmp_path) for _ in range(2)}
    assert len(folders) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("needlepoint: new kernels are not kept: ")
    assert "may only be read" in said


def test_no_home_is_no_error(tmp_path):
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    process = start(HOME=str(nowhere), XDG_CACHE_HOME=str(nowhere / "cache"))
    folder, _ = finish(process, "needlepoint: compiled kernels are not kept: ")
    assert folder == "None"


def test_a_cache_of_the_user_is_left_alone(tmp_path):
    theirs = tmp_path / "theirs"
    assert finish(start(JAX_COMPILATION_CACHE_DIR=str(theirs)))[0] == str(theirs)


def test_what_was_not_used_for_longest_is_removed(tmp_path):
    for i in range(10):
        path = tmp_path / f"jit_{i}-cache"
        path.write_bytes(zlib.compress(os.urandom(100_000)))
        os.utime(path, (time.time() - 1000 + i, time.time() - 1000 + i))
    caching._tidy(tmp_path, 0.5e6)
    left = sorted(path.name for path in tmp_path.glob("*-cache"))
    assert left == [f"jit_{i}-cache" for i in (7, 8, 9)]  # less than 0.8 of what is allowed


def test_checked_once(tmp_path):
    good, bad, other = (tmp_path / f"{name}-cache" for name in ("good", "bad", "other"))
    good.write_bytes(zlib.compress(b"kernel" * 100))
    bad.write_bytes(zlib.compress(b"kernel" * 100)[:-3])
    other.write_bytes(b"\x28\xb5\x2f\xfd of another format")
    caching._tidy(tmp_path, 1e9)
    assert sorted(path.name for path in tmp_path.glob("*-cache")) == ["good-cache", "other-cache"]
    old = time.time() - 100
    good.write_bytes(b"\x78damaged later")
    os.utime(good, (old, old))
    caching._tidy(tmp_path, 1e9)
    assert good.exists()  # not read again: JAX compiles what it cannot read


@pytest.mark.parametrize("megabytes", [0, -1, float("inf"), float("nan"), "much", True])
def test_a_size_that_is_none(megabytes):
    with pytest.raises(ndl.InvalidParameter, match="megabytes must be > 0"):
        ndl.use_cache(megabytes=megabytes)


def test_a_notebook_is_told_once(monkeypatch, capsys):
    monkeypatch.setattr(caching, "_told", False)
    monkeypatch.setattr(caching, "_of_jax", lambda: None)
    monkeypatch.setitem(sys.modules, "ipykernel", caching)
    monkeypatch.setitem(sys.modules, "IPython", caching)
    caching.suggest()
    caching.suggest()
    assert capsys.readouterr().err.count("ndl.use_cache()") == 1
    monkeypatch.setattr(caching, "_told", False)
    monkeypatch.setenv(caching.SWITCH, "off")
    caching.suggest()
    assert capsys.readouterr().err == ""
