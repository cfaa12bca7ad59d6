"""The source's lines: their code, and which of them are one statement."""

from __future__ import annotations

import pytest

from autotile.devices.emulator.source import code_lines, first_lines


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a = b;\nc = d;", {}),
        ("out[i] =\n  p[i].x +  // the first;\n  p[i].y;\nc = d;", {2: 1, 3: 1}),
        ("f(a,\n  b);", {2: 1}),
        ("if (a[i] > 0)\n  out[i] = b[i];", {2: 1}),
        ("a = 1;\n} else {\n  out[i] = b[i];\n}", {}),
        ("for (int i = 0; i < n; i++) {\n  s +=\n    x[i];", {3: 2}),
        ("#pragma unroll\nfor (;;) {\n  a = b;\n}", {}),
        ("a = b /* ;\n ; */\n\n + c;", {4: 1}),
        ('s = "{;" +\n  t;', {2: 1}),
        ("", {}),
    ],
)
def test_lines_that_go_on_name_the_one_that_began(text: str, found: dict[int, int]) -> None:
    assert first_lines(text) == found


def test_code_is_without_comments_and_keeps_its_literals() -> None:
    text = "  a = \"http://x\";  // b\nc = '\"'; /* d\ne */ f;\n];\n\nint g = 1'000; // it's"
    assert code_lines(text) == {1: 'a = "http://x";', 2: "c = '\"';", 3: "f;", 6: "int g = 1'000;"}
