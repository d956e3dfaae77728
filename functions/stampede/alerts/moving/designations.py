"""Designations of minor planets and comets, in the one form that all of Stampede uses.

Surveys and people write one body in several ways: ``2011 UW158``, ``2011UW158``, ``K11UF8W``;
``45685``, ``(45685)``. Here it is as the Minor Planet Center writes it unpacked, without
parentheses: ``2011 UW158``, ``45685``, ``2040 P-L``, ``C/2017 K2``, ``64P``.

Source: Minor Planet Center, "Packed Provisional and Permanent Designations"
(minorplanetcenter.net/iau/info/PackedDes.html), with the extended forms for objects after the
620th of a half month and numbers from 620,000 on.
"""

import re
from collections.abc import Callable
from string import ascii_lowercase, ascii_uppercase, digits

MOST = 64
"""Most characters of a designation."""
_BASE62 = digits + ascii_uppercase + ascii_lowercase
_CENTURIES = {"I": 18, "J": 19, "K": 20, "L": 21}
_LETTERS = "ABCDEFGHJKLMNOPQRSTUVWXYZ"  # of an order in a half month: all but I
_FIRST_EXTENDED = 620  # the order that has no packed form of two characters
_TILDE = 620_000


def standard_form(text: str) -> str:
    """The designation as the Minor Planet Center writes it; what is none stays as it is.

    Blanks at the ends go, and several become one. A name after a designation in parentheses stays
    away: ``(99942) Apophis`` is ``99942``, ``C/2017 K2 (PANSTARRS)`` is ``C/2017 K2``.
    """
    text = " ".join(text.split())
    for pattern, write in _FORMS:
        if found := pattern.fullmatch(text):
            return write(found)
    return text


def path_form(designation: str) -> str:
    """A standard form with no ``/`` and no blank, for an address: ``C_2017_K2``."""
    return designation.replace("/", "_").replace(" ", "_")


def is_designation(text: str) -> bool:
    """Whether a text is a designation in one of the known forms, a bare number among them."""
    return any(pattern.fullmatch(" ".join(text.split())) for pattern, _ in _FORMS)


def _order(letter: str, number: int) -> str:
    """The end of a provisional designation: ``W158`` for ``W`` and 158, ``W`` for 0."""
    return f"{letter}{number or ''}"


def _number(found: re.Match[str]) -> str:
    return str(int(found["number"]))


def _packed_number(found: re.Match[str]) -> str:
    return str(_BASE62.index(found["high"]) * 10_000 + int(found["low"]))


def _tilde_number(found: re.Match[str]) -> str:
    return str(_TILDE + _of_base62(found["number"]))


def _of_base62(text: str) -> int:
    value = 0
    for character in text:
        value = 62 * value + _BASE62.index(character)
    return value


def _provisional(found: re.Match[str]) -> str:
    kind = f"{found['kind'].upper()}/" if found["kind"] else ""
    half, order, number = found["half"].upper(), found["order"].upper(), int(found["number"] or 0)
    return f"{kind}{found['year']} {half}{_order(order, number)}"


def _comet(found: re.Match[str]) -> str:
    kind, fragment = found["kind"].upper(), found["fragment"] or ""
    number = found["number"] or ""
    return f"{kind}/{found['year']} {found['half'].upper()}{number}{fragment.upper()}"


def _numbered_comet(found: re.Match[str]) -> str:
    return f"{int(found['number'])}{found['kind'].upper()}{(found['fragment'] or '').upper()}"


def _packed_provisional(found: re.Match[str]) -> str:
    year = _CENTURIES[found["century"]] * 100 + int(found["year"])
    number = _BASE62.index(found["high"]) * 10 + int(found["low"])
    return f"{year} {found['half']}{_order(found['order'], number)}"


def _packed_comet(found: re.Match[str]) -> str:
    year = _CENTURIES[found["century"]] * 100 + int(found["year"])
    number = _BASE62.index(found["high"]) * 10 + int(found["low"])
    fragment = "" if found["fragment"] == "0" else f"-{found['fragment'].upper()}"
    return f"{found['kind']}/{year} {found['half']}{number or ''}{fragment}"


def _extended(found: re.Match[str]) -> str:
    """``_RD0aEM``: year 27, half month D, and the order from 15500 on in base 62."""
    order = _of_base62(found["order"]) + _FIRST_EXTENDED * len(_LETTERS)
    number, letter = divmod(order, len(_LETTERS))
    year = 2000 + _BASE62.index(found["year"])
    return f"{year} {found['half']}{_order(_LETTERS[letter], number)}"


def _survey(found: re.Match[str]) -> str:
    return f"{int(found['number'])} {found['letter'].upper()}-{found['survey'].upper()}"


def _packed_survey(found: re.Match[str]) -> str:
    letter, survey = found["survey"][0], found["survey"][1]
    return f"{int(found['number'])} {letter}-{survey}"


_SEPARATOR = r"[ _-]?"
_NAME = r"(?: .*| ?\(.*\))?"
_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"(?P<number>0*[1-9]\d{0,6})", re.ASCII), _number),
    (re.compile(rf"\((?P<number>0*[1-9]\d{{0,6}})\){_NAME}", re.ASCII), _number),
    (re.compile(r"(?P<high>[A-Za-z])(?P<low>\d{4})", re.ASCII), _packed_number),
    (re.compile(r"~(?P<number>[0-9A-Za-z]{4})", re.ASCII), _tilde_number),
    (
        re.compile(
            rf"(?:(?P<kind>[CPDXAIcpdxai])[/_])?(?P<year>1[89]\d\d|2\d\d\d){_SEPARATOR}"
            rf"(?P<half>[A-HJ-Ya-hj-y])(?P<order>[A-HJ-Za-hj-z])(?P<number>\d{{1,6}})?{_NAME}",
            re.ASCII,
        ),
        _provisional,
    ),
    (
        re.compile(
            rf"(?P<kind>[CPDXAIcpdxai])[/_](?P<year>1[89]\d\d|2\d\d\d){_SEPARATOR}"
            rf"(?P<half>[A-HJ-Ya-hj-y])(?P<number>[1-9]\d{{0,3}})?(?P<fragment>-[A-Za-z]{{1,2}})?"
            rf"{_NAME}",
            re.ASCII,
        ),
        _comet,
    ),
    (
        re.compile(
            rf"(?P<number>0*[1-9]\d{{0,3}})(?P<kind>[PDIpdi])(?P<fragment>-[A-Za-z]{{1,2}})?"
            rf"(?:/.*)?{_NAME}",
            re.ASCII,
        ),
        _numbered_comet,
    ),
    (
        re.compile(
            r"(?P<century>[IJKL])(?P<year>\d\d)(?P<half>[A-HJ-Y])(?P<high>[0-9A-Za-z])(?P<low>\d)"
            r"(?P<order>[A-HJ-Z])",
            re.ASCII,
        ),
        _packed_provisional,
    ),
    (
        re.compile(
            r"(?P<kind>[CPDXAI])(?P<century>[IJKL])(?P<year>\d\d)(?P<half>[A-HJ-Y])"
            r"(?P<high>[0-9A-Za-z])(?P<low>\d)(?P<fragment>[0a-z])",
            re.ASCII,
        ),
        _packed_comet,
    ),
    (
        re.compile(r"_(?P<year>[A-Za-z])(?P<half>[A-HJ-Y])(?P<order>[0-9A-Za-z]{4})", re.ASCII),
        _extended,
    ),
    (
        re.compile(
            rf"(?P<number>[1-9]\d{{3}}){_SEPARATOR}(?P<letter>[PTpt])-(?P<survey>[Ll1-3])",
            re.ASCII,
        ),
        _survey,
    ),
    (re.compile(r"(?P<survey>PL|T1|T2|T3)S(?P<number>\d{4})", re.ASCII), _packed_survey),
)
