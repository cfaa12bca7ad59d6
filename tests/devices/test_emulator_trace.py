"""What a trace tells beside its diagnostics: each access's cost, what the barriers protect, and requests as wide as the
GPU's machine code makes them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated import Build, clean, kernel, line_of, only, randoms, without, zeros

from autotile.devices.emulator import Report
from autotile.devices.emulator.report import Access

MATMUL = (Path(__file__).parent.parent / "data" / "emulator" / "matmul_tile.cu").read_text()
LANES = tuple(range(32))


def commented(source: str) -> dict[str, int]:
    """The lines that end with a comment, by its text."""
    lines = enumerate(source.split("\n"), start=1)
    return {text.split("// ")[1]: number for number, text in lines if "// " in text}


# --------------------------------------------------------------------------------------------------- costs of accesses

COSTS = kernel(
    "int n, const float* in, const P* points, const float* again, float* out",
    """
    __shared__ float square[32][32], padded[32][33];
    __shared__ unsigned char bytes[128];
    extern __shared__ float more[];
    int i = threadIdx.x;
    put(out, i, in[i]);  // copy
    put(out, 32 + i, in[i + 1]);  // late
    put(out, 64 + i, points[i].x);  // member
    put(out, 96 + i, in[n * i]);  // strided
    put(out, 128 + i, again[i] + points[i].y);  // two arrays
    square[i][1] = in[0];  // column
    padded[i][1] = 1.0f;  // padded column
    bytes[4 * i] = 1;  // bytes
    more[i] = 2.0f;  // dynamic""",
    """
struct P { float x, y, z; };
static __device__ __forceinline__ void put(float* to, int at, float value) {
    to[at] = value;  // put
}""",
)


@pytest.fixture(scope="module")
def costs(build: Build) -> Mapping[tuple[str, str, str], list[Access]]:
    """By the end of the innermost line, op and space."""
    points, given, out = zeros(96), zeros(32 * 32), zeros(160)
    report = build(COSTS).launch((1, 1, 1), (32, 1, 1), 128, [32, given, points, given, out], "trace")
    assert clean(report)
    comments = {line: comment for comment, line in commented(COSTS).items()}
    found: dict[tuple[str, str, str], list[Access]] = {}
    for access in report.accesses:
        assert access.line is not None
        found.setdefault((comments[access.line], access.op, access.space), []).append(access)
    return found


@pytest.mark.parametrize(
    ("comment", "sectors", "example"),
    [("copy", 4, [4 * i for i in LANES]), ("late", 5, [4 * i + 4 for i in LANES]),
     ("member", 12, [12 * i for i in LANES]), ("strided", 32, [128 * i for i in LANES])],
)  # fmt: skip
def test_the_cost_of_a_load(costs: Any, comment: str, sectors: int, example: list[int]) -> None:
    (load,) = costs[comment, "load", "global"]
    assert (load.requests, load.total, load.worst, load.used_bytes) == (1, sectors, sectors, 128)
    assert load.example == tuple(example)
    assert load.argument == {"member": 2}.get(comment, 1)
    assert (load.called_from, load.from_machine_code) == ((), False)


def test_what_all_lanes_share_is_used_once(costs: Any) -> None:
    (load,) = costs["column", "load", "global"]
    assert (load.total, load.used_bytes, load.example) == (1, 4, (0,) * 32)


def test_two_arrays_on_a_line_are_two_accesses(costs: Any) -> None:
    first, second = costs["two arrays", "load", "global"]
    assert (first.argument, first.total) == (1, 4)  # the same array as `in`, under its first number
    assert (second.argument, second.total, second.example[:2]) == (2, 12, (4, 16))


def test_an_inlined_line_tells_where_it_was_called_from(costs: Any) -> None:
    stores = costs["put", "store", "global"]
    called = [commented(COSTS)[name] for name in ("copy", "late", "member", "strided", "two arrays")]
    assert [store.called_from for store in stores] == [(line,) for line in called]
    assert {(store.requests, store.total, store.argument) for store in stores} == {(1, 4, 4)}
    assert stores[1].example == tuple(128 + 4 * i for i in LANES)


@pytest.mark.parametrize(
    ("comment", "wavefronts", "used", "step"),
    [("column", 32, 128, 128), ("padded column", 1, 128, 132), ("bytes", 1, 32, 4), ("dynamic", 1, 128, 4)],
)
def test_the_cost_of_a_store_to_shared_memory(costs: Any, comment: str, wavefronts: int, used: int, step: int) -> None:
    (store,) = costs[comment, "store", "shared"]
    assert (store.total, store.worst, store.used_bytes, store.argument) == (wavefronts, wavefronts, used, None)
    assert set(np.diff(store.example)) == {step}
    # The dynamic array lies behind 4096 + 4224 + 128 static bytes.
    assert store.example[0] == 8448 if comment == "dynamic" else store.example[-1] < 8448


# ------------------------------------------------------------------------------------------------ what barriers protect


def protected(report: Report) -> dict[tuple[int, str, int | None, int | None], int]:
    assert clean(report)
    return {(p.barrier_line, p.op, p.first_line, p.line): p.count for p in report.protections}


def run_matmul(build: Build, widths: Mapping[tuple[int, str, str], int] | None = None, mode: Any = "trace") -> Report:
    arguments = [randoms(64, 64), randoms(64, 64), zeros(64, 64), *(np.int32(64),) * 3]
    return build(MATMUL, "matmul").launch((2, 2, 1), (32, 32, 1), 0, arguments, mode, widths=widths)


def test_both_barriers_of_a_matmul(build: Build) -> None:
    report = run_matmul(build)
    at = commented(MATMUL)
    fill, use, first, second = at["fill b"], at["use"], at["first barrier"], at["second barrier"]
    # A warp fills and reads its own row of a; of b it reads 32 rows, 31 of them other warps'.
    assert protected(report) == {
        (first, "read-after-write", fill, use): 4 * 2 * 1024 * 31,
        (second, "write-after-read", use, fill): 4 * 1024,
    }
    assert report.barriers == ((first, 4 * 2), (second, 4 * 2))


def test_a_race_is_no_protection(build: Build) -> None:
    source = without(MATMUL, "// second barrier")
    arguments = [randoms(64, 64), randoms(64, 64), zeros(64, 64), *(np.int32(64),) * 3]
    report = build(source, "matmul").launch((1, 1, 1), (32, 32, 1), 0, arguments, "trace")
    assert {d.op for d in only(report, "shared_race")} == {"write-after-read", "read-after-write"}
    assert {(p.barrier_line, p.op) for p in report.protections} == {
        (line_of(source, "// first barrier"), "read-after-write")
    }


def test_a_check_notes_no_protections(build: Build) -> None:
    report = run_matmul(build, mode="check")
    assert (report.accesses, report.protections, report.barriers) == ((), (), ())


ORDERS = kernel(
    "int* out",
    """
    __shared__ int twice[64], over[64], own[64], apart[64], later[64], seen[64];
    int i = threadIdx.x, other = i ^ 32;
    twice[i] = i;  // write
    over[i] = i;  // write over
    own[i] = i;
    apart[i] = i;
    for (int k = 0; k < 2; ++k)
      __syncthreads();  // passed twice
    later[i] = twice[other];  // read
    over[other] = own[i ^ 1];  // overwrite
    seen[i] = i;
    __syncwarp();
    out[i] = seen[i ^ 1];  // see
    __syncthreads();  // last
    twice[i] = apart[other];  // write again
    seen[other] = i;  // forget
    if (i < 48) out[i] += later[other] + over[i];  // result""",
)


def test_one_barrier_and_no_other_protects(build: Build) -> None:
    at = commented(ORDERS)
    result, twice, last = at["result"], at["passed twice"], at["last"]
    report = build(ORDERS).launch((1, 1, 1), (64, 1, 1), 0, [zeros(64, dtype=np.int32)], "trace")
    assert protected(report) == {
        (twice, "read-after-write", at["write"], at["read"]): 64,
        (twice, "write-after-write", at["write over"], at["overwrite"]): 64,
        (last, "write-after-read", at["read"], at["write again"]): 64,
        (last, "write-after-read", at["see"], at["forget"]): 64,
        (last, "read-after-write", at["read"], result): 48,
        (last, "read-after-write", at["overwrite"], result): 48,
    }
    assert report.barriers == ((twice, 2), (last, 1))


COPIES = kernel(
    "const float* in, float* out",
    """
    __shared__ __align__(16) float s[64];
    int i = threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < 2; ++k) {
      __pipeline_memcpy_async(&s[i], in + 64 * k + i, 4);  // copy
      __pipeline_commit();
      __pipeline_wait_prior(0);
      __syncthreads();  // landed
      sum += s[i ^ 32];  // use
      __syncthreads();  // free
    }
    out[i] = sum;""",
    "#include <cuda_pipeline.h>",
)


def test_asynchronous_copies_are_protected_too(build: Build) -> None:
    report = build(COPIES).launch((1, 1, 1), (64, 1, 1), 0, [zeros(128), zeros(64)], "trace")
    at = commented(COPIES)
    assert protected(report) == {
        (at["landed"], "read-after-write", at["copy"], at["use"]): 128,
        (at["free"], "write-after-read", at["use"], at["copy"]): 64,
    }


def test_a_copy_meets_conflicts_at_both_ends(build: Build) -> None:
    body = """
    __shared__ __align__(16) float s[64];
    __pipeline_memcpy_async(&s[2 * threadIdx.x], in + start + pitch * threadIdx.x, bytes);  // copy
    __pipeline_wait_prior(0);"""
    program = build(kernel("const float* in, int start, int pitch, int bytes", body, "#include <cuda_pipeline.h>"))

    def passes(pitch: int, size: int, start: int = 0) -> list[int]:
        report = program.launch((1, 1, 1), (32, 1, 1), 0, [zeros(33 * 32), start, pitch, size], "trace")
        assert clean(report)
        return [a.total for a in report.accesses if a.space == "shared"]

    # Two lanes a bank make two passes of 4 bytes; two half warps of 8 bytes go one after the other.
    assert passes(1, 4) == [2]
    assert passes(1, 4, start=1) == [2]
    assert passes(2, 4) == [2 + 1]
    assert passes(32, 4) == [2 + 31]
    assert passes(2, 8) == [2]
    assert passes(8, 8) == [2 + 2 * 3]


CLUSTER = kernel(
    "float* out",
    """
    namespace cg = cooperative_groups;
    cg::cluster_group cluster = cg::this_cluster();
    __shared__ float s[64], t[64];
    int i = threadIdx.x;
    s[i] = i;  // write
    t[i] = i;  // write own
    cluster.sync();  // begun
    out[i] = *cluster.map_shared_rank(&s[i], cluster.block_rank() ^ 1);  // reach
    out[i] += t[i ^ 32];  // own
    cluster.sync();  // done
    s[i] = 0.0f;  // write again""",
    "#include <cooperative_groups.h>",
).replace("__global__ void", "__global__ void __cluster_dims__(2, 1, 1)")


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_barriers_of_a_cluster_protect_its_blocks(build: Build, order: Any) -> None:
    source = CLUSTER.replace("out[i]", "out[64 * blockIdx.x + i]")
    report = build(source).launch((4, 1, 1), (64, 1, 1), 0, [zeros(256)], "trace", order)
    at = commented(source)
    assert protected(report) == {
        (at["begun"], "read-after-write", at["write"], at["reach"]): 4 * 64,
        (at["begun"], "read-after-write", at["write own"], at["own"]): 4 * 64,
        (at["done"], "write-after-read", at["reach"], at["write again"]): 4 * 64,
    }
    assert report.barriers == ((at["begun"], 4), (at["done"], 4))
    (reach,) = (a for a in report.accesses if (a.line, a.op, a.space) == (at["reach"], "load", "shared"))
    assert set(np.diff(reach.example)) == {4}
    assert 0 <= reach.example[0] < reach.example[-1] < 512  # in the other block's shared memory


# --------------------------------------------------------------------------------------------- widths of machine code

needs_call_sites = pytest.mark.skipif(sys.platform != "linux", reason="calls are looked for in ELF files")


def requests(report: Report, line: int, op: str = "load", space: str = "shared") -> dict[tuple[int, bool], int]:
    """By width, and whether that is the machine code's."""
    found = Counter[tuple[int, bool]]()
    for a in report.accesses:
        if (a.line, a.op, a.space) == (line, op, space):
            found[a.access_bytes, a.from_machine_code] += a.requests
    return dict(found)


@needs_call_sites
def test_a_row_of_a_tile_is_read_in_a_quarter_of_the_requests(build: Build) -> None:
    use = commented(MATMUL)["use"]
    plain, wide = run_matmul(build), run_matmul(build, {(use, "load", "shared"): 16})
    columns = 4 * 32 * 64  # of b, by every warp of each block
    assert requests(plain, use) == {(4, False): 2 * columns}
    both = [a for a in plain.accesses if (a.line, a.op, a.space) == (use, "load", "shared")]
    assert sorted(len(set(a.example)) for a in both) == [1, 32]  # a row that all lanes share, a row of their own
    assert requests(wide, use) == {(4, False): columns, (16, True): columns // 4}
    (row,) = (a for a in wide.accesses if a.from_machine_code)
    # All lanes read one place: half a warp goes at a time.
    assert (row.per_request, row.used_bytes, row.lanes) == (2.0, 16 * row.requests, 32.0)
    assert wide.protections == plain.protections


ROWS = kernel(
    "float* out, int first, int last, int cut, int lanes",
    """
    __shared__ __align__(16) float s[32][8];
    int i = threadIdx.x, end = i < lanes ? last : first;
    for (int k = 0; k < 8; ++k) s[i][k] = out[8 * i + k];  // copy
    float sum = 0.0f;
    for (int k = first; k < end; ++k) {
      if (k == cut) __syncthreads();
      sum += s[i][k];  // row
    }
    sum += s[i][6];  // six
    sum += s[i][7];  // seven
    out[8 * i] = sum;""",
)


@needs_call_sites
@pytest.mark.parametrize(
    ("arguments", "width", "found"),
    [((0, 8, -1, 32), 16, {16: 2}), ((0, 8, -1, 32), 8, {8: 4}), ((0, 7, -1, 32), 16, {16: 1, 8: 1, 4: 1}),
     ((1, 8, -1, 32), 16, {16: 1, 8: 1, 4: 1}), ((0, 8, 2, 32), 16, {16: 1, 8: 2}), ((0, 8, -1, 16), 16, {4: 8})],
    ids=["full", "pairs", "end", "begin", "barrier", "lanes"],
)  # fmt: skip
def test_runs_that_fill_a_wider_request(
    build: Build, arguments: tuple[int, ...], width: int, found: dict[int, int]
) -> None:
    at = commented(ROWS)
    row, copy, pair = at["row"], at["copy"], (at["six"], at["seven"])
    widths = {(row, "load", "shared"): width, (copy, "load", "global"): 16, (copy, "load", "shared"): 8}
    widths |= {(line, "load", "shared"): 16 for line in pair}
    report = build(ROWS).launch((1, 1, 1), (32, 1, 1), 0, [zeros(256), *arguments], "trace", widths=widths)
    assert clean(report)
    assert requests(report, row) == {(size, size > 4): count for size, count in found.items()}
    assert [requests(report, line) for line in pair] == [{(4, False): 1}] * 2  # each stands alone on its line
    assert all(address % a.access_bytes == 0 for a in report.accesses for address in a.example)
    if arguments[3] == 32:
        assert requests(report, copy, "load", "global") == {(16, True): 2}
        assert requests(report, copy, "store") == {(4, False): 8}
        (read,) = (a for a in report.accesses if a.space == "global" and a.op == "load")
        assert (read.total, read.used_bytes, read.example[:2]) == (64, 1024, (0, 32))


@needs_call_sites
def test_a_statement_over_two_lines_is_read_in_one_request(build: Build) -> None:
    """The GPU's compiler puts the wide load on one of them, the emulator's has an access on each."""
    at = commented(ROWS)
    report = build(ROWS).launch(
        (1, 1, 1), (32, 1, 1), 0, [zeros(256), 0, 8, -1, 32], "trace",
        widths={(at["seven"], "load", "shared"): 16}, first_lines={at["seven"]: at["six"]},
    )  # fmt: skip
    assert requests(report, at["six"]) == {(8, True): 1}
    assert requests(report, at["seven"]) == {}
    assert requests(report, at["row"]) == {(4, False): 8}


def test_atomic_operations_and_what_was_too_much_are_told(build: Build) -> None:
    """262144 accesses of a thread between two barriers are logged."""
    text = kernel(
        "float* out, int n",
        """
        float sum = 0.0f;
        for (int i = 0; i < n; ++i) sum += ((volatile float*)out)[1];
        if (threadIdx.x == 0) atomicAdd(out, sum);
        """,
    )
    program = build(text)
    few = program.launch((1, 1, 1), (2, 1, 1), 0, [zeros(2), 10], "trace")
    many = program.launch((1, 1, 1), (2, 1, 1), 0, [zeros(2), 262_150], "trace")
    assert (few.copies.atomics, few.copies.dropped) == (1, 0)
    assert many.copies.dropped >= 2 * 6


SPLIT_COPIES = kernel(
    "const float* in, float* out, int pitch, int row",
    """
    extern __shared__ __align__(16) float s[];
    int r = 4 * threadIdx.x / row, c = 4 * threadIdx.x % row;
    __pipeline_memcpy_async(&s[r * pitch + c], &in[1024 * r + c], 16);  // copy
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
    """,
)


@pytest.mark.parametrize(
    ("row", "pitch", "sectors"),
    # As an H200 counts them: 16 sectors, and again those that lie across a boundary of as many bytes as a row has.
    [(8, 8, 16), (8, 12, 24), (16, 16, 16), (16, 20, 20), (32, 32, 16), (32, 36, 18), (128, 128, 16)],
)
def test_a_copy_past_the_cache_is_moved_twice_where_it_is_split(
    build: Build, row: int, pitch: int, sectors: int
) -> None:
    program = build("#include <cuda_pipeline.h>\n" + SPLIT_COPIES)
    report = program.launch((1, 1, 1), (32, 1, 1), 4 * 16 * pitch, [randoms(16, 1024), zeros(32), pitch, row], "trace")
    (copy,) = (a for a in report.accesses if (a.space, a.op) == ("global", "load"))
    assert copy.per_request == sectors
