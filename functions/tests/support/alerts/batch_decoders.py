"""Decoders as the functions make them, without settings and without a deadline."""

from pathlib import Path

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.alerts.decoder import Decoder
from stampede.alerts.framing import Framing
from stampede.handlers.decoding import DecoderFile

SECRET = b"fixed secret"  # twelve bytes; a function's are random


def make_decoder(directory: Path) -> Decoder:
    return Decoder(DecoderFile(directory))


def make_batch_decoder(
    directory: Path, latest_mjd: float = float("inf"), decoder: Decoder | None = None
) -> BatchDecoder:
    decoder = decoder or make_decoder(directory)
    return BatchDecoder(Framing(16 << 20), decoder, lambda: latest_mjd, SECRET)
