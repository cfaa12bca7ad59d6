"""Results out and in: tables, JSON, CUDA files; and back, checked."""

from autotile.report.export import FORMATS, ExportWarning, export
from autotile.report.importer import ImportSummary, import_results

__all__ = ["FORMATS", "ExportWarning", "ImportSummary", "export", "import_results"]
