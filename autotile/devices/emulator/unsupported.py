"""Says what of a CUDA source the emulator cannot run, before a compiler does so in its own words."""

from __future__ import annotations

import re

from autotile.devices.emulator.entries import stray_cluster
from autotile.devices.emulator.ptx import unknown_instructions
from autotile.devices.emulator.source import emulated_lines
from autotile.errors import UnsupportedByEmulator

_OTHER_GROUPS = (
    r"#\s*include\s*<cooperative_groups/|\b(?:this_(?:(?:multi_)?grid|thread_block|thread)|thread_block(?:_tile)?"
    r"|thread_group|(?:multi_)?grid_group|coalesced_(?:threads|group)|tiled_partition|(?:binary|labeled)_partition"
    r"|block_tile_memory|memcpy_async)\s*[<(\w]"
)
# What a construct looks like, what it is called, and what to write for the emulator instead.
_CONSTRUCTS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"#\s*include\s*<mma\.h>|\bwmma\b", "tensor core fragments (wmma)"),
        (r"\bwgmma\w*", "warp-group matrix instructions (wgmma)"),
        (_OTHER_GROUPS, "cooperative groups other than the cluster's"),
        (r"#\s*include\s*<cuda/barrier>|\bcuda::barrier\b|\b__mbarrier_\w+", "cuda::barrier"),
        (r"#\s*include\s*<cuda/pipeline>|\bcuda::(?:make_)?pipeline\b", "cuda::pipeline"),
        (
            r"\b__cluster(?!_dims__)\w*|\b__block_size__\b|\b(?:__is_)?clusterDim\w*|\bclusterIdx\b",
            "the built-in functions of thread block clusters (use cooperative_groups::this_cluster())",
        ),
        (r"\bCUtensorMap\w*|\bcp_async_bulk\w*", "tensor maps (TMA)"),
        (r"\bcudaTextureObject_t\b|\btexture\s*<|\btex[123]D\w*\s*[<(]", "textures"),
        (r"\bcudaSurfaceObject_t\b|\bsurface\s*<|\bsurf[123]D\w*\s*[<(]", "surfaces"),
        (r"<<<", "launching a kernel from a kernel"),
        (r"\b__managed__\b", "managed variables"),
        (
            r"\b__device__\s+(?!.*\b(?:const|constexpr)\b)[\w:<>]+[\w:<>\s*]*\s\w+\s*(?:\[[^\]]*\]\s*)*(?:=[^=].*)?;",
            "writable global variables (__device__)",
        ),
        (r"\b__constant__\s+[^;=({]*;", "constant memory that the host fills (__constant__ without a value)"),
    )
)


def refuse_unsupported(source_text: str) -> None:
    """Raises UnsupportedByEmulator, naming construct and line, when `source_text` holds what the CPU cannot run.

    Comments, literals and branches that the preprocessor drops where AUTOTILE_EMULATOR is defined do not count.
    """
    unknown = unknown_instructions(source_text)
    for number, line in enumerate(emulated_lines(source_text), start=1):
        named = (name for pattern, name in _CONSTRUCTS if pattern.search(line))
        refused = unknown.get(number) or next(named, None)
        if refused is not None:
            raise UnsupportedByEmulator(
                f"kernel.cu:{number}: the emulator cannot run {refused}. Give it another way under "
                "`#ifdef AUTOTILE_EMULATOR`, or run this variant on a GPU."
            )
    stray = stray_cluster(source_text)
    if stray is not None:
        raise UnsupportedByEmulator(
            f"kernel.cu:{source_text[:stray].count(chr(10)) + 1}: the emulator cannot run thread block clusters whose "
            "size does not stand in the head of a __global__ function. Write __cluster_dims__(2, 1, 1) there, or run "
            "this variant on a GPU."
        )
