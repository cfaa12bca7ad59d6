"""autotile finds, proves and ships the fastest version of a CUDA kernel for each GPU.

import autotile
matmul = autotile.load("matmul", m=4096, n=4096, k=4096, dtype="float32")
c = matmul(a, b)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotile.runtime.explain import explain
    from autotile.runtime.load import load
    from autotile.runtime.search import search
    from autotile.runtime.tuned import TunedKernel

__version__ = "0.1.0"
__all__ = ["TunedKernel", "__version__", "explain", "load", "search"]


def __getattr__(name: str) -> Any:
    """Public names are imported when first used: `import autotile` is free, whatever lies behind them."""
    if name in ("TunedKernel", "explain", "load", "search"):
        from autotile import runtime

        return getattr(runtime, name)
    raise AttributeError(f"module 'autotile' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
