"""What `load` and `search` may be asked, and what a tuned kernel does away from its process."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotile
from autotile.devices.cuda import driver as cuda
from autotile.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    DeviceNotFound,
    KernelError,
    UsageError,
)
from autotile.store import MemoryStore

pytestmark = pytest.mark.filterwarnings("ignore::autotile.runtime.notes.AutotileWarning")  # nothing is tuned here


def load(**named: Any) -> autotile.TunedKernel:
    return autotile.load(**{"kernel": "matmul", "m": 8, "n": 8, "k": 8, "device": "emulator", **named})


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"kernel": None}, "kernel must be a kernel's name"),
        ({"device": None}, "device must be auto, cuda:N, emulator, emulator:GPU or replay:FILE, not None"),
        ({"device": 0}, "device must be"),
        ({"strict": "no"}, "strict must be True or False, not 'no'"),
        ({"strict": 1}, "strict must be"),
        ({"store": "records"}, r"store must be a store of records, such as autotile\.store\.Store"),
        ({"store": Path("records")}, "store must be"),
        ({"templates": 5}, "templates must be a folder of kernel folders"),
        ({"templates": None}, "templates must be"),
        ({"templates": [Path(), 5]}, "templates must be"),
        ({"templates": b"kernels"}, "templates must be"),
        ({"dtype": 3}, 'dtype must be a name such as "float32" or a numpy dtype, not 3'),
        ({"dtype": ["float32"]}, "dtype must be"),
    ],
)
def test_parameters_of_load(named: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentTypeError, match=message):
        load(**named)


@pytest.mark.parametrize("size", [1024.0, "1024", True, None, np.float32(8), np.array(8), np.True_, 2**31, 0])
def test_sizes_of_load(size: Any) -> None:
    with pytest.raises(UsageError, match="n must be an integer from 1 to 2147483647, not "):
        load(n=size)


@pytest.mark.parametrize("size", [np.int64(9), np.uint8(9), np.int32(9), 9])
def test_integers_of_every_kind_are_sizes(size: Any) -> None:
    problem = load(n=size).problem
    assert problem["n"] == 9
    assert type(problem["n"]) is int


@pytest.mark.parametrize("dtype", ["float64", np.float64, np.dtype("<f8"), float])
def test_names_of_a_dtype(dtype: Any) -> None:
    assert load(dtype=dtype).problem.dtype == "float64"


def test_dtypes_that_the_kernel_has_not() -> None:
    with pytest.raises(UsageError, match="matmul has no dtype 'int16'"):
        load(dtype=np.int16)
    with pytest.raises(UsageError, match="dtype uint64 is not supported"):
        load(dtype=np.uint64)


def test_what_is_asked_is_what_is_used(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="is not a folder"):
        load(templates=tmp_path / "none")
    assert load(store=MemoryStore(), templates=[str(tmp_path), tmp_path]).match == "default"


@pytest.mark.parametrize(
    ("named", "error", "message"),
    [
        ({"config": 5}, ArgumentTypeError, "config must be a search file's path"),
        ({"config": None}, ArgumentTypeError, "config must be"),
        ({"device": None}, ArgumentTypeError, "device must be auto"),
        ({"templates": 5}, ArgumentTypeError, "templates must be"),
        ({"jobs": 0}, ArgumentValueError, "jobs must be at least 1, not 0"),
        ({"jobs": -1}, ArgumentValueError, "jobs must be at least 1, not -1"),
        ({"jobs": 1.5}, ArgumentTypeError, "jobs must be an integer from 1, not 1.5"),
        ({"jobs": True}, ArgumentTypeError, "jobs must be an integer"),
        ({"trials": 0}, ArgumentValueError, "trials must be at least 1, not 0"),
        ({"trials": "many"}, ArgumentTypeError, "trials must be an integer"),
        ({"seed": -1}, ConfigurationError, "search.seed must be an integer of at least 0"),
        ({"seed": 1.5}, ConfigurationError, "search.seed must be an integer"),
        ({"sampler": 5}, ConfigurationError, "unknown sampler 5"),
        ({"time": True}, ConfigurationError, "True is not a duration"),
        ({"time": -3}, ConfigurationError, "-3 is not a duration"),
        ({"sets": "search.trials=3"}, ArgumentTypeError, "sets must be a list of texts"),
        ({"sets": 5}, ArgumentTypeError, "sets must be"),
        ({"sets": [3]}, ArgumentTypeError, "sets must be"),
        ({"fresh": "yes"}, ArgumentTypeError, "fresh must be True or False"),
        ({"listener": print}, ArgumentTypeError, "listener must be"),
    ],
)
def test_parameters_of_search(named: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        autotile.search(**{"config": "matmul-quick", "device": "emulator", "trials": 1, **named})


# ---- away from its process -----------------------------------------------------------------------------------------


def test_a_pickle_is_refused_and_says_what_to_do() -> None:
    kernel = load()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match=r"matmul 8×8×8 float32 .* cannot be pickled.* Call autotile\.load\(…\) in"):
            pickle.dumps(kernel, protocol)


def test_a_copy_is_the_same() -> None:
    kernel = load()
    assert copy.copy(kernel) is kernel
    assert copy.deepcopy({"kernel": kernel})["kernel"] is kernel


@pytest.mark.parametrize("device", ["auto", "cuda", "cuda:0"])
def test_a_child_forked_after_cuda_started_is_told_to_spawn(monkeypatch: Any, device: str) -> None:
    """Not served by the emulator instead, and not given what its parent has open."""
    monkeypatch.setattr(cuda, "_initialised_in", os.getpid() + 1)
    for module, name in (("runtime.load", "opened_device"), ("tuner.replayed", "open_device")):
        monkeypatch.setattr(import_module(f"autotile.{module}"), name, lambda *given: pytest.fail("opened"))
    with pytest.raises(DeviceNotFound, match='start processes with "spawn"'):
        load(device=device)
    with pytest.raises(DeviceNotFound, match='start processes with "spawn"'):
        autotile.search("matmul-quick", device=device, trials=1)


def test_it_is_no_matter_to_the_emulator(monkeypatch: Any) -> None:
    monkeypatch.setattr(cuda, "_initialised_in", os.getpid() + 1)
    assert load().match == "default"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_on_the_emulator_a_forked_child_goes_on() -> None:
    script = """
        import os, warnings
        import numpy as np
        import autotile
        warnings.simplefilter("ignore")
        request = dict(m=8, n=8, k=8, device="emulator")
        kernel = autotile.load("matmul", **request)
        a = np.arange(64, dtype=np.float32).reshape(8, 8)
        assert np.array_equal(kernel(a, a), a @ a)
        child = os.fork()
        right = all(np.array_equal(k(a, a), a @ a) for k in (kernel, autotile.load("matmul", **request)))
        if not child:
            os._exit(0 if right else 3)
        assert right
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
