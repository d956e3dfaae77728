"""Files of alerts of any survey: what they hold, and a survey's module made from them."""

__all__ = [
    "report",
    "sample",
    "survey_files",
]
