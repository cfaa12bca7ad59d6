"""Which compiler is taken: the one asked for, the environment's, the one whose path is named, the preferred one."""

import pytest

from autotile.build import Builder, choice, find_built, flags_at_hand
from autotile.errors import ArgumentValueError, ToolchainMissing
from autotile.types import Source, Target

SM_90 = Target("cuda", "sm_90")
SOURCE = Source("copy", "copy", "text")
TEXTS = {"nvcc": "nvcc 12.2.88", "nvrtc": "NVRTC 12.2.140"}


@pytest.fixture
def both(fake, fake_nvrtc):
    """Both compilers are here, and the environment names the paths of both. (Each fixture clears the other's names.)"""
    fake_nvrtc()
    fake()


def taken(tmp_path, **options) -> str:
    with Builder(SM_90, tmp_path / "home", jobs=1, **options) as builder:
        return builder.compiler


def test_the_argument_wins_over_the_environment_and_that_over_the_preference(both, tmp_path, monkeypatch):
    assert taken(tmp_path) == TEXTS[choice.PREFERENCE[0]]
    for name, other in (("nvcc", "nvrtc"), ("nvrtc", "nvcc")):
        monkeypatch.setenv("AUTOTILE_COMPILER", name)
        assert taken(tmp_path) == TEXTS[name]
        assert taken(tmp_path, compiler=other) == TEXTS[other]


@pytest.mark.parametrize("broken", TEXTS)
def test_auto_falls_back_and_a_choice_does_not(both, tmp_path, monkeypatch, broken):
    (other,) = TEXTS.keys() - {broken}
    monkeypatch.setenv(f"AUTOTILE_{broken.upper()}", str(tmp_path / "gone"))
    assert taken(tmp_path) == TEXTS[other]
    with pytest.raises(ToolchainMissing, match="gone: not there"):
        taken(tmp_path, compiler=broken)


def test_neither_names_both(both, tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOTILE_NVCC", str(tmp_path / "gone"))
    monkeypatch.setenv("AUTOTILE_NVRTC", str(tmp_path / "lost"))
    with pytest.raises(ToolchainMissing, match=r"gone: not there.*set AUTOTILE_NVCC.*lost: not there.*AUTOTILE_NVRTC"):
        taken(tmp_path)


@pytest.mark.parametrize("name", TEXTS)
def test_a_path_that_is_named_is_a_choice(both, tmp_path, monkeypatch, name):
    (other,) = TEXTS.keys() - {name}
    monkeypatch.delenv(f"AUTOTILE_{other.upper()}")
    assert taken(tmp_path) == TEXTS[name]
    monkeypatch.setenv(f"AUTOTILE_{name.upper()}", str(tmp_path / "gone"))
    with pytest.raises(ToolchainMissing, match="gone: not there"):
        taken(tmp_path)


def test_a_name_that_is_none(tmp_path, monkeypatch):
    with pytest.raises(ArgumentValueError, match=r"compiler='nvc' is no compiler .*'nvcc'.*auto, nvcc, nvrtc"):
        taken(tmp_path, compiler="nvc")
    monkeypatch.setenv("AUTOTILE_COMPILER", "clang")
    with pytest.raises(ArgumentValueError, match="AUTOTILE_COMPILER='clang'"):
        taken(tmp_path)


def test_the_flags_at_hand_are_those_of_the_compiler_that_would_be_taken(both, tmp_path, monkeypatch):
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
    monkeypatch.setenv("AUTOTILE_NVRTC_FLAGS", "-lineinfo")
    texts = {"nvcc": "NVCC_APPEND_FLAGS=-G", "nvrtc": "AUTOTILE_NVRTC_FLAGS=-lineinfo"}
    for name, text in texts.items():
        monkeypatch.setenv("AUTOTILE_COMPILER", name)
        assert flags_at_hand(SM_90) == text
    monkeypatch.delenv("AUTOTILE_COMPILER")
    monkeypatch.setenv("AUTOTILE_NVCC", str(tmp_path / "gone"))
    assert flags_at_hand(SM_90) == texts["nvrtc"]


def test_each_finds_what_it_built_and_not_what_the_other_did(both, tmp_path):
    for name, text in TEXTS.items():
        assert find_built(SOURCE, SM_90, text, tmp_path / "home") is None
        with Builder(SM_90, tmp_path / "home", jobs=1, compiler=name) as builder:
            built = builder.build(SOURCE)
        found = find_built(SOURCE, SM_90, text, tmp_path / "home")
        assert (found.path, found.compiler) == (built.path, text)
