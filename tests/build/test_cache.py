"""The cache of binaries: whole entries or none, and never a wrong one."""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotile.build import leftovers
from autotile.build.cache import BinaryCache, BuildCacheWarning, cache_key

FACTS = {
    "digest": "d",
    "entry": "k",
    "compiler": "nvcc 1",
    "arch": "sm_90",
    "registers": 32,
    "spill_bytes": 0,
    "static_shared_bytes": None,
    "build_s": 0.5,
}
KEY = "ab" + "0" * 62


def publish(home: Path, data: bytes = b"machine code") -> Path:
    return BinaryCache(home).publish(KEY, "kernel.cubin", data, **FACTS)[0]


def test_lies_where_it_is_documented(tmp_path):
    assert publish(tmp_path) == tmp_path / "binaries" / "ab" / KEY / "kernel.cubin"
    path, meta = BinaryCache(tmp_path).find(KEY)
    assert path.read_bytes() == b"machine code"
    assert (meta.registers, meta.length) == (32, 12)


@pytest.mark.parametrize("damage", ["truncated", "changed", "missing", "no meta", "torn meta", "old meta"])
def test_a_damaged_entry_is_a_miss_and_is_replaced(tmp_path, damage):
    path = publish(tmp_path)
    meta = path.parent / "meta.json"
    match damage:
        case "truncated":
            path.write_bytes(b"machine")
        case "changed":
            path.write_bytes(b"machine c0de")
        case "missing":
            path.unlink()
        case "no meta":
            meta.unlink()
        case "torn meta":
            meta.write_text(meta.read_text()[:20])
        case "old meta":
            meta.write_text(json.dumps({"file": "kernel.cubin"}))
    assert BinaryCache(tmp_path).find(KEY) is None
    publish(tmp_path)
    assert BinaryCache(tmp_path).find(KEY) is not None
    assert not list((tmp_path / "binaries" / "tmp").iterdir())


def test_every_field_counts_and_none_poses_as_another():
    fields = ["text", "entry", "flags", "compiler", "arch"]
    keys = {cache_key(*fields)}
    for i in range(5):
        keys.add(cache_key(*[field + "x" * (i == j) for j, field in enumerate(fields)]))
    keys.add(cache_key("texte", "ntry", "flags", "compiler", "arch"))
    assert len(keys) == 7


def test_two_processes_publish_the_same_entry(tmp_path):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        paths = pool.map(publish, [tmp_path] * 8)
    assert len(set(paths)) == 1
    assert paths[0].read_bytes() == b"machine code"


def test_a_home_that_cannot_be_written_warns_once_and_works(tmp_path):
    home = tmp_path / "file"
    home.write_text("not a folder")
    with pytest.warns(BuildCacheWarning, match="AUTOTILE_HOME"):
        cache = BinaryCache(home)
    for _ in range(2):  # without another warning, which would be an error here
        with cache.workdir() as folder:
            (Path(folder) / "kernel.ptx").write_bytes(b"code")
        cache.publish(KEY, "kernel.cubin", b"code", **FACTS)
    assert cache.find(KEY) is not None


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_cache_is_the_same(tmp_path):
    tmp_path.chmod(0o555)
    try:
        with pytest.warns(BuildCacheWarning):
            BinaryCache(tmp_path)
    finally:
        tmp_path.chmod(0o755)


@pytest.fixture
def dead() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.mark.skipif(os.name != "posix", reason="asks for processes by their numbers")
@pytest.mark.parametrize("kind", ["build", "entry", "damaged"])
def test_what_a_killed_process_left_is_swept(tmp_path, monkeypatch, dead, kind):
    folder = tmp_path / "binaries" / "tmp"
    mine = folder / f"{leftovers.prefix(kind)}abc"
    start = mine.name.removesuffix(f"{os.getpid()}-abc")
    of_dead, of_parent, impossible = (folder / f"{start}{pid}-abc" for pid in (dead, os.getppid(), 2**70))
    monkeypatch.setattr(leftovers, "_place", lambda: "0" * 8)
    other = folder / f"{leftovers.prefix(kind)}abc"  # of another machine, where that number may live
    monkeypatch.undo()
    unnamed = folder / f"{kind}-abc"
    foreign = folder / "notes"
    for path in (mine, of_dead, of_parent, impossible, other, unnamed, foreign):
        path.mkdir(parents=True)
        (path / "kernel.cu").write_text("")
    BinaryCache(tmp_path)
    assert set(folder.iterdir()) == {mine, of_parent, other, unnamed, foreign}
    old = time.time() - leftovers.ABANDONED_S - 60
    for path in folder.iterdir():
        os.utime(path, (old, old))
    BinaryCache(tmp_path)
    assert set(folder.iterdir()) == {mine, of_parent, foreign}


def test_a_runtime_that_was_not_finished_is_swept_when_it_is_old(tmp_path):
    fresh, old = (tmp_path / "binaries" / f"building-{word}" for word in ("fresh", "old"))
    for path in (fresh, old):
        path.mkdir(parents=True)
    os.utime(old, (0, 0))
    BinaryCache(tmp_path)
    assert fresh.exists()
    assert not old.exists()


def test_work_under_way_survives_another_cache_that_opens(tmp_path):
    with BinaryCache(tmp_path).workdir() as folder:
        os.utime(folder, (0, 0))
        code = (
            "import pathlib, sys; from autotile.build.cache import BinaryCache; BinaryCache(pathlib.Path(sys.argv[1]))"
        )
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
        assert Path(folder).is_dir()
