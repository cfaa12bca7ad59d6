"""Lines that belong to one statement."""

from __future__ import annotations

import pytest

from autotile.measure.statements import code_lines, first_lines


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a = b;\nc = d;", {}),
        ("out[i] =\n  p[i].x +  // the first;\n  p[i].y;\nc = d;", {2: 1, 3: 1}),
        ("f(a,\n  b);", {2: 1}),
        ("if (a[i] > 0)\n  out[i] = b[i];", {}),
        ("} else\n  out[i] = b[i];", {}),
        ("for (int i = 0; i < n; i++)\n  s +=\n    x[i];", {3: 2}),
        ("#pragma unroll\nfor (;;) {\n  a = b;\n}", {}),
        ("a = b /* ;\n ; */\n\n + c;", {4: 1}),
        ('s = "{;" +\n  t;', {2: 1}),
        ("label:\n  a = b;", {}),
        ("", {}),
    ],
)
def test_lines_that_go_on_name_the_one_that_began(text: str, found: dict[int, int]) -> None:
    assert first_lines(text) == found


def test_comments_and_literals_are_no_code() -> None:
    text = 'a = "x // y";  // b\nc = \'"\'; /* d\ne */ f;'
    assert [line.rstrip() for line in code_lines(text)] == ['a = "";', "c = '';", " f;"]
