"""A plain copy kernel, 16 bytes a load and a store, in several sizes: what the memory gives a kernel of our own.

Each thread loads all its vectors before it stores the first. The bytes beyond the last whole vector are copied one by
one by the first block.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotile.types import Launch, Source

VECTOR_BYTES = 16

TEXT = """\
#define THREADS {threads}
#define VECTORS {vectors}

extern "C" __global__ void __launch_bounds__(THREADS)
vector_copy(const uint4* __restrict__ from, uint4* __restrict__ to, int count, int tail_bytes)
{{
    const int first = blockIdx.x * (THREADS * VECTORS) + threadIdx.x;
    uint4 held[VECTORS];
    #pragma unroll
    for (int v = 0; v < VECTORS; ++v)
        if (first + v * THREADS < count) held[v] = from[first + v * THREADS];
    #pragma unroll
    for (int v = 0; v < VECTORS; ++v)
        if (first + v * THREADS < count) to[first + v * THREADS] = held[v];
    if (blockIdx.x == 0 && threadIdx.x < tail_bytes)
        ((char*)(to + count))[threadIdx.x] = ((const char*)(from + count))[threadIdx.x];
}}
"""


@dataclass(frozen=True)
class VectorCopy:
    """`vectors` of 16 bytes a thread, `threads` a block."""

    threads: int
    vectors: int

    @property
    def label(self) -> str:
        return f"{self.threads} threads, {self.vectors} vectors"

    @property
    def source(self) -> Source:
        return Source("copy", "vector_copy", TEXT.format(threads=self.threads, vectors=self.vectors))

    def launch(self, array_bytes: int) -> Launch:
        blocks = -(-(array_bytes // VECTOR_BYTES) // (self.threads * self.vectors))
        return Launch((max(1, blocks), 1, 1), (self.threads, 1, 1))

    def sizes(self, array_bytes: int) -> tuple[int, int]:
        """The arguments behind the two addresses: whole vectors, and the bytes that are left."""
        return divmod(array_bytes, VECTOR_BYTES)


VARIANTS = tuple(VectorCopy(threads, vectors) for threads in (256, 512) for vectors in (2, 4, 8))
