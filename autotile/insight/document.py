"""An explanation as an object of JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from autotile.insight.explanation import Explanation


def document_of(explanation: Explanation) -> dict[str, Any]:
    """Field by field, with named values as objects, and with the figures that are worked out from others."""
    document = asdict(explanation)
    for name in ("configuration", "units_ms", "instructions"):
        document[name] = dict(document[name])
    document["profile"] = [
        {"name": name, "emulator": ours, "profiler": theirs} for name, ours, theirs in explanation.profile
    ]
    document["occupancy"] |= {"limits": dict(explanation.occupancy.limits), "percent": explanation.occupancy.percent}
    document["roofline"]["percent"] = explanation.roofline.percent
    document["shared"]["needs_optin"] = explanation.shared.needs_optin
    return document
