"""From a configuration to CUDA text."""

from autotile.codegen.render import render, template_digest

__all__ = ["render", "template_digest"]
