"""Writes the man page, docs/man/stampede.1, from the help of each command: `python tools/man.py`.

The wheel installs it to share/man/man1, where `man stampede` finds it if the command is on PATH.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "functions")]

from tools.docs.commands import commands, help_of  # noqa: E402

from stampede import __version__  # noqa: E402

PAGE = ROOT / "docs" / "man" / "stampede.1"
WIDTH = 72  # a terminal of 80 columns, less the indent of a section
HEAD = """\
.\\" Made by tools/man.py from the help of each command.
.TH STAMPEDE 1 "" "Stampede {version}" "Stampede"
.SH NAME
stampede \\- store every alert of a sky survey, and serve its cutouts and light curves
.SH SYNOPSIS
.B stampede
.I COMMAND
.RI [ OPTIONS ]
.SH DESCRIPTION
Start with
.BR "stampede up" :
everything on this machine. Settings are environment variables, STAMPEDE_STORE and so on:
.B stampede settings
lists them, each with what it is for.
.B stampede doctor
examines an installation and says what mends it.
.SH EXIT STATUS
0 if all went well, 1 if a command found something wrong, 2 if it could not do what you asked, 130
after Ctrl-C.
.SH FILES
.TP
.I ~/.local/share/stampede
What
.B stampede up
keeps, unless it is given another directory by \\-\\-data: its Ceph and Kafka, logs, and up.json,
by which commands find it.
.SH COMMANDS
"""


def page() -> str:
    """The whole page, in the language of man(7)."""
    parts = [HEAD.format(version=__version__)]
    for words in sorted(commands()):
        text = help_of(words, WIDTH).strip("\n")
        parts.append(f".SS stampede {' '.join(words)}\n.nf\n{escaped(text)}\n.fi\n")
    return "".join(parts)


def escaped(text: str) -> str:
    r"""Text as it is shown: a backslash is ``\e``, a hyphen ``\-``, and no line is a request."""
    shown = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(
        f"\\&{line}" if line.startswith((".", "'")) else line for line in shown.split("\n")
    )


if __name__ == "__main__":
    PAGE.write_text(page())
