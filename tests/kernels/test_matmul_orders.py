"""The maps that the ring is tuned with lose nothing and take nothing twice: worked out by a C++ compiler."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import jinja2
import pytest

from autotile.assets import templates_dir
from autotile.devices.emulator.compiler import find_host_compiler
from autotile.kernels import load_kernel

KERNEL = load_kernel("matmul")
ORDERS = [str(order) for order in KERNEL.parameter("order").values]
TILES = list(itertools.product((4, 8, 16), repeat=2))
MAPS = [(str(m), int(lanes)) for m in KERNEL.parameter("lane_map").values for lanes in (1, 2, 4, 8)
        if m != "squares" or lanes >= 4]  # fmt: skip
ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(templates_dir()),
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)
PROGRAM = """\
{% from "_lib/fma_order.j2" import fma_order %}
{% from "_lib/lanes.j2" import lanes %}
#include <cstdio>
#define __device__
{% for order in orders %}{% for rows, cols in tiles %}
namespace order_{{ order }}_{{ rows }}_{{ cols }} {
{{ fma_order(order, rows, cols) }}
}
{% endfor %}{% endfor %}
{% for map, across in maps %}
void lanes_{{ map }}_{{ across }}() {
    constexpr int LANES_M = {{ across }}, LANES_N = 32 / LANES_M;
    std::printf("{{ map }} {{ across }}");
    for (int lane = 0; lane < 32; lane++) {
{{ lanes(map) }}
        std::printf(" %d,%d", lane_m, lane_n);
    }
    std::puts("");
}
{% endfor %}
int main() {
{% for order in orders %}{% for rows, cols in tiles %}
    std::printf("{{ order }} {{ rows }} {{ cols }}");
    for (int x = 0; x < {{ rows * cols }}; x++)
        std::printf(" %d,%d", order_{{ order }}_{{ rows }}_{{ cols }}::fma_row(x),
                    order_{{ order }}_{{ rows }}_{{ cols }}::fma_col(x));
    std::puts("");
{% endfor %}{% endfor %}
{% for map, across in maps %}
    lanes_{{ map }}_{{ across }}();
{% endfor %}
}
"""
Places = list[tuple[int, int]]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Places]:
    """By `<order> <rows> <columns>` or `<map> <lanes along m>`: where each multiply-add, or each lane, is."""
    folder: Path = tmp_path_factory.mktemp("orders")
    text = ENVIRONMENT.from_string(PROGRAM).render(orders=ORDERS, tiles=TILES, maps=MAPS)
    (folder / "orders.cpp").write_text(text, encoding="utf-8")
    subprocess.run(
        [find_host_compiler().path, "-std=c++17", "-o", "orders", "orders.cpp"], cwd=folder, check=True, timeout=60
    )
    done = subprocess.run([folder / "orders"], capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, Places] = {}
    for line in done.stdout.splitlines():
        words = line.split()
        pairs = [word.split(",") for word in words if "," in word]
        found[" ".join(word for word in words if "," not in word)] = [(int(row), int(col)) for row, col in pairs]
    return found


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_has_each_multiply_add_once(places: dict[str, Places], order: str) -> None:
    for rows, cols in TILES:
        assert sorted(places[f"{order} {rows} {cols}"]) == list(itertools.product(range(rows), range(cols)))


@pytest.mark.parametrize("order", [order for order in ORDERS if order not in ("rows", "columns")])
def test_neighbours_in_an_order_that_turns_share_an_operand(places: dict[str, Places], order: str) -> None:
    """It is what they are for. Squares are walked round, and leave theirs by a step to the next."""
    for rows, cols in TILES:
        walk = places[f"{order} {rows} {cols}"]
        apart = sum(a[0] != b[0] and a[1] != b[1] for a, b in itertools.pairwise(walk))
        assert apart <= (rows // 2 * cols // 2 if order == "squares" else 0)


def test_no_two_orders_are_one(places: dict[str, Places]) -> None:
    assert len({tuple(places[f"{order} 8 8"]) for order in ORDERS}) == len(ORDERS)


@pytest.mark.parametrize(("lane_map", "across"), MAPS)
def test_a_lane_map_has_each_place_once(places: dict[str, Places], lane_map: str, across: int) -> None:
    assert sorted(places[f"{lane_map} {across}"]) == list(itertools.product(range(across), range(32 // across)))


def test_eight_neighbours_of_the_squares_cover_four_by_two(places: dict[str, Places]) -> None:
    for across in (4, 8):
        for first in range(0, 32, 8):
            eight = places[f"squares {across}"][first : first + 8]
            assert len({m for m, _ in eight}) == 4
            assert len({n for _, n in eight}) == 2
