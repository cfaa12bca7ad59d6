"""Thread block clusters on the emulator: distributed shared memory, its barrier, and kernels with one fault each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulated import Build, clean, kernel, line_of, only, randoms, without, zeros

from autotile.devices.emulator import Report, refuse_unsupported
from autotile.errors import LaunchError, UnsupportedByEmulator

HEADER = "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n"


def clustered(
    body: str, blocks: int | str = 4, before: str = "", parameters: str = "const float* in, float* out"
) -> str:
    return f"""{HEADER}{before}
extern "C" __global__ void __cluster_dims__({blocks}, 1, 1) __launch_bounds__(64) kernel({parameters}) {{
  cg::cluster_group cluster = cg::this_cluster();
  const int i = threadIdx.x, at = blockIdx.x * blockDim.x + i;
{body}
}}
"""


SUM = clustered("""
  __shared__ float part[64];
  part[i] = in[at];  // fill
  cluster.sync();  // first
  float sum = 0;
  for (unsigned r = 0; r < cluster.num_blocks(); ++r)
    sum += cluster.map_shared_rank(part, r)[i];  // use
  cluster.sync();  // last
  out[at] = sum;""")


def run_sum(
    build: Build, source: str, mode: Any = "check", order: Any = "forward", blocks: int = 8
) -> tuple[Report, bool]:
    data, out = randoms(blocks, 64), zeros(blocks, 64)
    report = build(source).launch((blocks, 1, 1), (64, 1, 1), 0, [data, out], mode, order)
    sums = data.reshape(-1, 4, 64).sum(axis=1).repeat(4, axis=0)
    return report, bool(np.allclose(out, sums, atol=1e-5))


@pytest.mark.parametrize("mode", ["run", "check", "trace"])
@pytest.mark.parametrize("order", ["forward", "backward"])
def test_a_cluster_adds_through_distributed_shared_memory(build: Build, mode: Any, order: Any) -> None:
    report, right = run_sum(build, SUM, mode, order)
    assert clean(report)
    assert right
    if mode == "trace":
        line = line_of(SUM, "// use")
        loads = sum(a.requests for a in report.accesses if (a.line, a.space, a.op) == (line, "shared", "load"))
        assert loads == 8 * 2 * 4


def test_the_untraced_build_runs_clusters_too(build: Build) -> None:
    program, data, out = build(SUM, traced=False), randoms(4, 64), zeros(4, 64)
    assert clean(program.launch((4, 1, 1), (64, 1, 1), 0, [data, out], "run"))
    assert np.allclose(out, data.sum(axis=0), atol=1e-5)


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_without_the_first_barrier(build: Build, order: Any) -> None:
    source = without(SUM, "// first")
    report, right = run_sum(build, source, order=order)
    assert not right
    (found,) = only(report, "unstarted_block")
    assert found.line == line_of(source, "// use")
    assert "which may not have started: a sync() of the cluster is missing before it" in found.message
    assert only(report, "shared_race") or only(report, "uninitialised_shared")


@pytest.mark.parametrize("mode", ["run", "check"])
@pytest.mark.parametrize("order", ["forward", "backward"])
def test_without_the_last_barrier(build: Build, mode: Any, order: Any) -> None:
    source = without(SUM, "// last")
    report, right = run_sum(build, source, mode, order)
    assert not right  # what an exited block leaves is poisoned
    (found,) = report.diagnostics
    assert (found.kind, found.op, found.line) == ("exited_block", "load", line_of(source, "// use"))
    assert "which may have exited: a sync() of the cluster is missing behind it" in found.message


RING = clustered("""
  extern __shared__ float tile[];
  float sum = 0;
  for (int step = 0; step < 3; ++step) {
    tile[i] = in[at] + step;  // put
    cluster.sync();  // full
    sum += *cluster.map_shared_rank(&tile[i], (cluster.block_rank() + 1) % cluster.num_blocks());  // take
    cluster.sync();  // empty
  }
  out[at] = sum;""")


@pytest.mark.parametrize("order", ["forward", "backward"])
@pytest.mark.parametrize("missing", ["", "// full", "// empty"])
def test_a_ring_of_blocks(build: Build, order: Any, missing: str) -> None:
    source = without(RING, missing) if missing else RING
    data, out = randoms(4, 64), zeros(4, 64)
    report = build(source).launch((4, 1, 1), (64, 1, 1), 256, [data, out], "check", order)
    assert np.allclose(out, 3 * np.roll(data, -1, axis=0) + 3, atol=1e-5) == (not missing)
    if not missing:
        assert clean(report)
        return
    put, take, races = line_of(source, "// put"), line_of(source, "// take"), only(report, "shared_race")
    assert {(d.op, d.line, d.other_line) for d in races} == {
        ("read-after-write", take, put), ("write-after-read", put, take)
    }  # fmt: skip
    assert all(d.block != d.other_block for d in races)
    assert "in a cluster between" in races[0].message
    assert "a sync() of the cluster is missing between them" in races[0].message


def test_own_readers_do_not_hide_those_of_another_block(build: Build) -> None:
    source = clustered(
        """
  __shared__ float s[64];
  s[i] = in[at];
  cluster.sync();
  float v = *cluster.map_shared_rank(&s[i], cluster.block_rank() ^ 1);  // use
  v += s[i ^ 1];
  __syncthreads();
  s[i] = v;  // again
  cluster.sync();
  out[at] = s[i];""",
        2,
    )
    report = build(source).launch((2, 1, 1), (64, 1, 1), 0, [randoms(2, 64), zeros(2, 64)], "check")
    races = {(d.op, d.line, d.other_line) for d in only(report, "shared_race")}
    use, again = line_of(source, "// use"), line_of(source, "// again")
    assert {("write-after-read", again, use), ("read-after-write", use, again)} == races


def test_threads_of_one_block_race_in_another(build: Build) -> None:
    source = clustered(
        """
  __shared__ float s[64];
  s[i] = 0;
  cluster.sync();
  if (cluster.block_rank() == 0) cluster.map_shared_rank(s, 1)[i / 33] = i;  // store
  cluster.sync();
  out[at] = s[i];""",
        2,
    )
    report = build(source).launch((2, 1, 1), (64, 1, 1), 0, [randoms(2, 64), zeros(2, 64)], "check")
    race = only(report, "shared_race")[0]
    assert (race.op, race.line, race.block, race.other_block) == (
        "write-after-write", line_of(source, "// store"), 0, 0
    )  # fmt: skip


def test_atomics_of_many_blocks_are_no_race(build: Build) -> None:
    source = clustered("""
  __shared__ int total;
  if (i == 0) total = 0;
  cluster.sync();
  atomicAdd(cluster.map_shared_rank(&total, 0), 1);
  cluster.sync();
  if (i == 0) out[blockIdx.x] = total;""")
    out = zeros(8)
    assert clean(build(source).launch((8, 1, 1), (64, 1, 1), 0, [zeros(1), out], "check"))
    assert out.tolist() == [256, 0, 0, 0, 256, 0, 0, 0]


def test_the_barrier_of_a_cluster_orders_global_memory(build: Build) -> None:
    body = "\n  out[at] = in[at];\n  cluster.sync();\n  float v = out[at ^ 64];\n  cluster.sync();\n  out[at] = v;"
    source = clustered(body, 2)
    data, out = randoms(4, 64), zeros(4, 64)
    assert clean(build(source).launch((4, 1, 1), (64, 1, 1), 0, [data, out], "check"))
    assert (out == data[[1, 0, 3, 2]]).all()
    far = clustered(body.replace("at ^ 64", "at ^ 128"), 2)
    found = build(far).launch((4, 1, 1), (64, 1, 1), 0, [data, out], "check").diagnostics
    assert {d.kind for d in found} == {"global_race"}
    early = build(source.replace("cluster.sync();", "__syncthreads();", 1))
    assert only(early.launch((4, 1, 1), (64, 1, 1), 0, [data, out], "check"), "global_race")


def test_names_of_blocks_and_threads(build: Build) -> None:
    source = clustered(
        """
  out[at] = cluster.thread_rank() + 1000 * cluster.block_rank() + 10000 * cluster.num_blocks();
  __shared__ int s[2];
  if (cluster.query_shared_rank(cluster.map_shared_rank(s, 2)) != 2) out[at] = -1;
  if (cluster.query_shared_rank(s) != cluster.block_rank()) out[at] = -1;
  if (cluster.map_shared_rank(s, cluster.block_rank()) != s || cluster.num_threads() != 256) out[at] = -2;""",
        "B",
    )
    out = zeros(8, 64)
    program = build("#define B 4\n" + source)
    assert program.cluster() == (4, 1, 1)
    assert clean(program.launch((8, 1, 1), (64, 1, 1), 0, [zeros(1), out], "check"))
    block, thread = np.divmod(np.arange(512), 64)
    assert (out.reshape(-1) == block % 4 * 1064 + thread + 40000).all()


def test_a_cluster_of_a_grid_in_two_dimensions(build: Build) -> None:
    source = clustered("  out[blockIdx.x + gridDim.x * blockIdx.y] = cluster.block_rank();", 2)
    out = zeros(3, 4)
    clean(build(source).launch((4, 3, 1), (1, 1, 1), 0, [zeros(1), out], "check"))
    assert (out == [0, 1, 0, 1]).all()
    out[...] = -1
    clean(build(source).launch((4, 3, 1), (1, 1, 1), 0, [zeros(1), out], "check", blocks=[5]))
    assert out.tolist() == [[-1] * 4, [0, 1, -1, -1], [-1] * 4]


def test_a_kernel_without_clusters_is_one_of_one_block(build: Build) -> None:
    source = kernel(
        "float* out",
        "auto c = cg::this_cluster(); c.sync(); out[blockIdx.x] = c.num_blocks() + c.block_rank();",
        HEADER,
    )
    out = zeros(3)
    clean(build(source).launch((3, 1, 1), (32, 1, 1), 0, [out], "run"))
    assert out.tolist() == [1, 1, 1]


# -------------------------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ("if (i < 32) return;\n  cluster.sync();  // here", "barrier_divergence",
             "in the cluster of block 0: 64 of 128 threads wait"),
        ("if (blockIdx.x == 1) return;\n  cluster.sync();  // here", "barrier_divergence", "64 of 128 threads"),
        ("if (i < 32)\n  cluster.sync();  // here\n  else\n  cluster.sync();", "barrier_divergence", "at that of"),
        ("if (i < 32)\n  __syncthreads();  // here\n  else\n  cluster.sync();", "barrier_divergence",
             "at the barrier of"),
        ("if (i < 16) __syncwarp();  // here\n  else cluster.sync();", "deadlock", "waits for lanes"),
        ("cluster.map_shared_rank(s, 2)[0] = 1;  // here", "bad_rank", "rank 2, which the cluster does not have"),
        ("cluster.map_shared_rank(out, 1)[0] = 1;  // here", "bad_rank", "not in the block's own shared memory"),
        ("cluster.sync();\n  cluster.map_shared_rank(s, other)[out ? 64 : 0] = 1;  // here", "out_of_bounds",
         "0 bytes past the end of the static shared arrays (256 bytes), in the block of rank "),
        ("cluster.sync();\n  *(float2*)(cluster.map_shared_rank(s, other) + 1) = float2();  // here", "misaligned",
             "of rank"),
        ("cluster.sync();\n  out[at] = cluster.map_shared_rank(s, other)[i];  // here\n  cluster.sync();",
         "uninitialised_shared", "not written"),
        ("cluster.barrier_arrive();  // here", "split_barrier", "without a wait"),
        ("cluster.barrier_wait();  // here", "split_barrier", "without having arrived"),
        ("cluster.barrier_arrive();\n  cluster.sync();  // here", "split_barrier", "arrives again"),
        ("while (out) cluster.sync();", "timeout", "endless loop"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("order", ["forward", "backward"])
def test_faults(build: Build, order: Any, body: str, kind: str, says: str) -> None:
    source = clustered(
        f"  __shared__ float s[64];\n  if (!out) s[i] = 0;\n  int other = 1 - cluster.block_rank();\n  {body}\n", 2
    )
    report = build(source).launch((2, 1, 1), (64, 1, 1), 0, [zeros(1), zeros(128)], "check", order, limit_s=0.5)
    found = report.diagnostics[0]
    assert found.kind == kind, found.message
    if kind not in ("timeout", "barrier_divergence") or order == "forward":
        assert found.line == (line_of(source, "// here") if "here" in body else None)
    assert says in found.message


SPLIT = clustered(
    """
  __shared__ float s[64];
  s[i] = in[at];
  cluster.barrier_arrive();
  float own = s[i] * 2;  // between
  cluster.barrier_wait();
  float v = *cluster.map_shared_rank(&s[i], cluster.block_rank() ^ 1) + own;  // use
  cluster.sync();
  out[at] = v;""",
    2,
)


def both_orders(build: Build, source: str) -> set[tuple[str, str, int | None]]:
    found = set()
    for order in ("forward", "backward"):
        report = build(source).launch(
            (2, 1, 1), (64, 1, 1), 0, [randoms(2, 64), zeros(2, 64)], "check", order  # type: ignore[arg-type]
        )  # fmt: skip
        found |= {(d.kind, d.op, d.line) for d in report.diagnostics}
    return found


def test_a_barrier_in_two_halves(build: Build) -> None:
    assert both_orders(build, SPLIT) == set()
    between = line_of(SPLIT, "// between")
    late = SPLIT.replace("float own = s[i] * 2;", "float own = 0; s[i] = 3;")
    assert {kind for kind, _, _ in both_orders(build, late)} == {"shared_race"}
    reach = SPLIT.replace("s[i] * 2;", "*cluster.map_shared_rank(&s[i], cluster.block_rank() ^ 1);")
    assert ("split_barrier", "load", between) in both_orders(build, reach)
    tail = SPLIT.replace(
        "// use\n  cluster.sync();", "// use\n  cluster.barrier_arrive();\n  s[i] = 0;\n  cluster.barrier_wait();"
    )
    assert {kind for kind, _, _ in both_orders(build, tail)} == {"shared_race"}


@pytest.mark.parametrize(
    ("blocks", "grid", "says"),
    [(3, 4, "a grid of 4 blocks along x cannot be divided into clusters of 3"), (16, 16, "at most 8")],
)
def test_clusters_that_a_gpu_would_refuse(build: Build, blocks: int, grid: int, says: str) -> None:
    with pytest.raises(LaunchError, match=says):
        build(clustered("out[at] = 1;", blocks)).launch((grid, 1, 1), (1, 1, 1), 0, [zeros(1), zeros(grid)], "run")


def test_clusters_in_other_directions_are_refused_in_words(build: Build) -> None:
    source = clustered("out[at] = 1;").replace("(4, 1, 1)", "(1, 2, 1)")
    with pytest.raises(UnsupportedByEmulator, match=r"not \(1, 2, 1\)"):
        build(source).launch((2, 2, 1), (1, 1, 1), 0, [zeros(1), zeros(2)], "run")


@pytest.mark.parametrize(
    "text",
    ["#define HEAD __cluster_dims__(2, 1, 1)\n", 'extern "C" __global__ void __cluster_dims__() f() {}\n',
     "__cluster_dims__(2, 1, 1) void f();\n"],
)  # fmt: skip
def test_a_cluster_without_a_size_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedByEmulator, match=r"kernel.cu:2: .* size does not stand in the head"):
        refuse_unsupported(f"\n{text}")


K, C = 'extern "C" __global__ void', "__cluster_dims__(2, 1, 1)"
DECLARED_FIRST = f"{K} {C} kernel(float* out);\n{K} other(int) {{}}\n{K} {C} kernel(float* out)"
IN_A_BRANCH = f"""
#ifdef AUTOTILE_EMULATOR
#define N 2
#else
{K} __cluster_dims__(4, 1, 1) kernel(int);
#endif
{K} __cluster_dims__(N, 1, 1) kernel(float* out)"""


@pytest.mark.parametrize(
    "head",
    [
        f"__cluster_dims__(2) {K} __launch_bounds__(32, 1) kernel(float* out)",
        'extern "C" __global__ __launch_bounds__(32) __cluster_dims__(1 + 1, 1, 1) void kernel(float* out)',
        DECLARED_FIRST,
        IN_A_BRANCH,
    ],
)
def test_where_the_size_may_stand(build: Build, head: str) -> None:
    assert build(f"{HEADER}{head} {{ out[0] = 1; }}").cluster() == (2, 1, 1)


def test_the_largest_cluster(build: Build) -> None:
    """Eight blocks of 1024 threads, each with all the shared memory that a block may have."""
    source = clustered(
        """
  extern __shared__ float tile[];
  for (int k = i; k < 58112; k += blockDim.x) tile[k] = k + blockIdx.x;
  cluster.sync();
  out[at] = cluster.map_shared_rank(tile, (cluster.block_rank() + 7) % 8)[58111 - i];
  cluster.sync();""",
        8,
    ).replace("__launch_bounds__(64)", "")
    out = zeros(8, 1024)
    clean(build(source).launch((8, 1, 1), (1024, 1, 1), 227 * 1024, [zeros(1), out], "check"))
    assert (out == 58111 - np.arange(1024) + (np.arange(8)[:, None] + 7) % 8).all()
