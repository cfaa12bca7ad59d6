"""A saved configuration that this machine's compiler refuses: the default serves, and that is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from faulty_kernel import write_faulty

import autotile
from autotile.errors import CompileError
from autotile.runtime.notes import AutotileWarning
from autotile.store import Store
from autotile.types import Configuration


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_default_serves_in_its_place(tmp_path: Path) -> None:
    file = write_faulty(tmp_path, "none", 4096)
    (result,) = autotile.search(file, device="emulator", templates=tmp_path)
    assert result.best is not None
    refused = Configuration.of({**result.best.configuration, "width": 128, "fault": "does_not_compile"})
    assert Store().save_best(replace(result.best, configuration=refused), over=lambda stored: True)
    x = np.ones(4096, np.float32)
    kernel = autotile.load("faulty", n=4096, device="emulator", templates=tmp_path)
    assert (kernel.match, kernel.config) == ("exact", refused)
    with pytest.warns(AutotileWarning, match="the saved configuration does not compile here"):
        assert np.array_equal(kernel(x), 2 * x)
    assert (kernel.match, kernel.config["fault"], kernel.record) == ("default", "none", None)
    assert kernel.differs == ("the saved configuration does not compile here",)
    assert "this is not CUDA" not in kernel.source
    strict = autotile.load("faulty", n=4096, device="emulator", templates=tmp_path, strict=True)
    with pytest.raises(CompileError):
        strict(x)
