"""The host's C++ compiler behind the same builder."""

import shutil

import pytest

from autotile.build import Builder
from autotile.build.host import short_version
from autotile.errors import CompileError
from autotile.types import Source, Target

HOST = Target("host", "host")
COPY = """
extern "C" __global__ void copy(const float *a, float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = a[i];
}
"""


@pytest.mark.parametrize(
    ("path", "line", "short"),
    [
        ("/usr/bin/g++", "g++ (Debian 12.2.0-14+deb12u1) 12.2.0", "g++ 12.2.0"),
        ("/usr/bin/g++-13", "g++-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", "g++-13 13.3.0"),
        ("/usr/bin/clang++", "Debian clang version 16.0.6 (27+b1)", "clang++ 16.0.6"),
        ("/usr/bin/c++", "something else", "c++ something else"),
    ],
)
def test_short_version(path, line, short):
    assert short_version(path, line) == short


@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="needs a C++ compiler")
def test_builds_caches_and_refuses(tmp_path):
    with Builder(HOST, tmp_path, jobs=1) as builder:
        first = builder.build(Source("copy", "copy", COPY))
        assert first.path.suffix == ".so"
        assert first.target == HOST
        assert builder.build(Source("copy", "copy", COPY)).cached
        with pytest.raises(CompileError):
            builder.build(Source("copy", "copy", COPY.replace("a[i]", "c[i]")))
