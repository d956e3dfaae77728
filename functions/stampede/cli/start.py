"""How a process starts: `stampede serve NAME` at once, any other command by the command line.

Pods start so, and a function must start from zero fast. The command line, with typer, takes 60 ms
of CPU that `serve` does not need (docs/adr/0050-starts.md).
"""

import sys

from stampede.runtime.quick_imports import quicken_imports


def main() -> None:
    """Entry point of `stampede`."""
    match sys.argv[1:]:
        case ["serve", name] if not name.startswith("-"):
            _serve(name)
        case _:
            from stampede.cli.main import main as run_command

            run_command()


def _serve(name: str) -> None:
    from stampede.errors import StampedeError
    from stampede.handlers.function_process import run_function

    quicken_imports()
    try:
        run_function(name)
    except (StampedeError, ValueError) as error:
        from stampede.cli.main import complain, wrong_settings

        complain(error.message if isinstance(error, StampedeError) else wrong_settings(error))
    except KeyboardInterrupt:
        sys.exit("Aborted.")
