"""`stampede proofs`: signed proofs of nights, and comparisons with other archives."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.options import Data, results_console
from stampede.runtime.counts import are, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stampede.comparison.compare import Archive, Difference
    from stampede.comparison.night_counts import NightCounts
    from stampede.config.settings import Settings

proofs = typer.Typer(
    help="Signed proofs of what each night has, and comparisons with other archives.",
    no_args_is_help=True,
)


@proofs.callback()
def _group() -> None:
    """Signed proofs of what each night has, and comparisons with other archives."""


@proofs.command()
def make(
    days: Annotated[
        float | None,
        typer.Option(help="of nights that ended so many days ago; default: STAMPEDE_PROOF_DAYS"),
    ] = None,
    losses: Annotated[
        bool,
        typer.Option(
            "--losses", help="look for alerts that are lost too: reads their ids in all packs"
        ),
    ] = False,
    data: Data = None,
) -> None:
    """Make the proofs of all nights that are due: which alerts each night has, signed.

    Of the `stampede up` that is running, or of the store of STAMPEDE_STORE. The function
    `reconcile` does the same by itself. A second call makes a revision of those nights that have
    new alerts, and can go on after one that was stopped.

    With --losses a night whose packs lack alerts of its proof has a revision that names them, in
    `lost`. Repair what can be repaired first. A night whose lost alerts are back has one without.
    """
    from stampede.cli.running import running, settings_of
    from stampede.proofs.prover import Prover
    from stampede.proofs.signatures import SigningKey
    from stampede.store.open import open_objects
    from stampede.telemetry.logs import configure_command_logs

    configure_command_logs()
    settings = settings_of(running(data))
    key = SigningKey.read(settings.proof_key)
    console, made = results_console(), 0
    wait = days if days is not None else (settings.proof_days or 0.0)
    with console.status("looking at the nights") as status:

        def report(night: int, read: int, packs: int) -> None:
            status.update(f"night {night}: {read:,} of {packs:,} packs")

        prover = Prover(open_objects(settings), key, wait, settings.packet_days, report)
        found = prover.find_losses() if losses else iter(())
        for proof in chain(prover.make_pass(everything=True), found):
            console.print(proof.line, highlight=False, soft_wrap=True)
            made += 1
    console.print(f"{counted(made, 'proof')} made" if made else "each night has its proof already")
    if made and not key:
        console.print("they are not signed: STAMPEDE_PROOF_KEY names no key", style="yellow")


@proofs.command()
def key(
    file: Annotated[Path, typer.Argument(help="it must not be there", metavar="FILE")],
) -> None:
    """Write a new private key, which signs proofs, to a file, and print its public key.

    The setting STAMPEDE_PROOF_KEY names the file. Only its owner can read it.
    """
    from stampede.proofs.signatures import write_key

    typer.echo(f"public key: {write_key(file).public_key}")


@proofs.command()
def check(
    public_key: Annotated[
        str | None,
        typer.Option(help="the key that must have signed; without it, any", metavar="KEY"),
    ] = None,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep", help="compute each alert's digest again: reads all packets and images"
        ),
    ] = False,
    data: Data = None,
) -> None:
    """Check all proofs: signatures, the chain of nights, and whether the store has their alerts.

    Names each alert that the store lacks or has in another record, each forged or damaged proof,
    and each that another one names and that is not there. Then the exit status is 1.

    It believes the digests that packs have of their records. With --deep it puts each message
    together as it was sent, and computes its digest.
    """
    from stampede.cli.running import running, settings_of
    from stampede.comparison.stored_packets import StoredPackets
    from stampede.proofs.checks import ProofChecker
    from stampede.store.open import open_objects
    from stampede.telemetry.logs import configure_command_logs

    configure_command_logs()
    settings = settings_of(running(data))
    console, found = results_console(), 0
    objects = open_objects(settings)
    checker = ProofChecker(objects, public_key, settings.packet_days)
    with console.status("checking the proofs") as status:
        packets = StoredPackets(objects, settings, status.update)
        for each in chain(checker.faults(), packets.faults() if deep else ()):
            line = f"{each.survey} {each.night}: {each.fault}"
            console.print(line, highlight=False, markup=False, soft_wrap=True)
            found += 1
    if deep:
        gone = f"; {packets.gone:,} have lost images by retention" if packets.gone else ""
        console.print(f"{counted(packets.compared, 'alert')} of proofs were read{gone}")
    console.print(
        f"{counted(found, 'fault')}"
        if found
        else f"{counted(checker.checked, 'night')} {are(checker.checked)} as proven"
    )
    raise typer.Exit(1 if found else 0)


@proofs.command()
def compare(
    what: Annotated[
        str,
        typer.Argument(
            help="another Stampede, http(s)://HOST:PORT; a folder, file or s3://BUCKET/PREFIX of "
            "alerts in Avro, of ids in Parquet, CSV or HATS, or of counts by night",
            metavar="WHAT",
        ),
    ],
    survey: Annotated[str | None, typer.Option(help="of this survey only")] = None,
    nights: Annotated[
        str | None,
        typer.Option(help="a night, or the first and the last: 61000, or 61000-61030 (MJD, TAI)"),
    ] = None,
    token: Annotated[
        str, typer.Option(help="for a Stampede that demands one", envvar="STAMPEDE_TOKEN")
    ] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="print one JSON document for each night")
    ] = False,
    data: Data = None,
) -> None:
    """Compare nights of this store with another archive, alert by alert.

    Names the alerts that only one of them has, those of which it has another record, and those
    that are there twice; then the exit status is 1. Needs the proofs of this store
    (`stampede proofs make`), and no Kafka. Of another Stampede it asks only for what differs. A
    list of ids says nothing of records, and counts nothing of alerts. A bucket is read with the
    variables of AWS' own programs: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and
    AWS_SECRET_ACCESS_KEY.
    """
    from stampede.cli.running import running, settings_of
    from stampede.telemetry.logs import configure_command_logs

    configure_command_logs()
    settings = settings_of(running(data))
    console, unequal = results_console(), 0
    with console.status(f"reading {what}") as status:
        other = _archive(what, token, survey, settings, lambda text: status.update(text))
    for each in _differences(other, settings, survey, nights):
        unequal += not each.is_equal
        text = json.dumps(each.as_json()) if as_json else _text_of(each)
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    for fault in other.faults:
        typer.echo(f"not compared: {fault}", err=True)
    raise typer.Exit(1 if unequal or other.faults else 0)


def _differences(
    other: Archive | NightCounts, settings: Settings, survey: str | None, nights: str | None
) -> Iterator[Difference]:
    """What differs in each night that is asked for."""
    from stampede.comparison.compare import differences
    from stampede.comparison.night_counts import NightCounts
    from stampede.store.open import open_objects

    asked = open_objects(settings), {survey} if survey else None, *_nights(nights)
    if isinstance(other, NightCounts):
        return other.differences(*asked)
    return differences(other, *asked)


def _archive(
    what: str,
    token: str,
    survey: str | None,
    settings: Settings,
    progress: Callable[[str], None],
) -> Archive | NightCounts:
    """The archive that a word names. Raises `SetupError` if there is none."""
    from stampede.comparison.alert_files import AlertFiles
    from stampede.comparison.archive_files import SCHEME, BucketFolder, LocalFolder
    from stampede.comparison.id_tables import IdTables, tables_of
    from stampede.comparison.night_counts import NightCounts
    from stampede.comparison.stampede_site import StampedeSite
    from stampede.errors import SetupError

    if what.startswith(("http://", "https://")):
        return StampedeSite(what, token)
    folder = BucketFolder(what) if what.startswith(SCHEME) else LocalFolder(Path(what))
    if not (files := folder.tables()):
        return AlertFiles(folder.alerts(), settings, progress)
    if not (tables := tables_of(files)):
        raise SetupError(f"{what} has no table of alerts: only margins or indexes of a catalogue")
    return NightCounts.of(tables, survey) or IdTables(tables)


def _nights(text: str | None) -> tuple[int, int]:
    """The first and the last night that an option names. Raises `SetupError`."""
    from stampede.comparison.compare import EVERY_NIGHT
    from stampede.errors import SetupError

    if text is None:
        return EVERY_NIGHT
    first, _, last = text.partition("-")
    if not (first.isdigit() and (last or first).isdigit()):
        raise SetupError(f"--nights: neither a night nor two: {text!r:.40}")
    return int(first), int(last or first)


def _text_of(difference: Difference) -> str:
    """A night in some lines."""
    place = f"{difference.survey} {difference.night}"
    lines = []
    for kind, ids in difference.kinds.items():
        named = ", ".join(map(str, ids[:10].tolist()))
        more = f" and {len(ids) - 10:,} more" if len(ids) > 10 else ""
        lines.append(f"{place}: {len(ids):,} {kind}: {named}{more}")
    if difference.counts:
        here, there = difference.counts
        lines.append(f"{place}: {here:,} here, {there:,} there")
    return "\n".join(lines) or f"{place}: equal"
