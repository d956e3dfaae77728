"""Names and families of topics: which are read, and which nobody reads."""

import time
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.config.settings import Settings
from stampede.config.topics import Topics

NOW = datetime(2026, 6, 29, 23, 59, tzinfo=UTC)
ZTF, RUBIN = "ztf_{YYYYMMDD}_programid1", "lsst-alerts-v{n}"


def nights(*days: str, programme: int = 1) -> set[str]:
    return {f"ztf_{day}_programid{programme}" for day in days}


def test_a_week_of_nights_is_read_and_the_next_one() -> None:
    existing = nights("20260621", "20260622", "20260625", "20260629", "20260630", "20260701")
    read = Topics.parse(ZTF).current(existing | {"other"}, NOW)
    assert read == nights("20260622", "20260625", "20260629", "20260630")


def test_midnight_is_that_of_utc() -> None:
    existing, topics = nights("20260622"), Topics.parse(ZTF)
    assert topics.current(existing, NOW) == existing
    assert topics.current(existing, NOW + timedelta(minutes=1)) == set()


def test_a_window_may_be_given() -> None:
    existing = nights("20260619", "20260628")
    assert Topics.parse("ztf_{YYYYMMDD:10}_programid1").current(existing, NOW) == existing
    assert Topics.parse("ztf_{YYYYMMDD:1}_programid1").current(existing, NOW) == nights("20260628")


def test_the_newest_versions_are_read() -> None:
    existing = {"lsst-alerts-v7.4", "lsst-alerts-v9", "lsst-alerts-v10", "lsst-alerts-vx"}
    topics = Topics.parse(RUBIN)
    assert topics.current(existing, NOW) == {"lsst-alerts-v9", "lsst-alerts-v10"}
    existing.add("lsst-alerts-v11")
    assert topics.current(existing, NOW) == {"lsst-alerts-v10", "lsst-alerts-v11"}
    assert Topics.parse("lsst-alerts-v{n:1}").current(existing, NOW) == {"lsst-alerts-v11"}
    every = topics.in_order([each for each in existing if topics.holds(each)])
    assert every == [f"lsst-alerts-v{each}" for each in ("7.4", "9", "10", "11")]


def test_a_name_is_read_whether_it_is_there_or_not() -> None:
    topics = Topics.parse(f"alerts, {ZTF}")
    assert topics.current((), NOW) == {"alerts"}
    assert [topics.family_of(each) for each in ("alerts", "ztf_20200101_programid1", "x")] == [
        "alerts",
        ZTF,
        "x",
    ]
    assert not Topics.parse(" , ")


@pytest.mark.parametrize("name", ["ztf_20260231_programid1", "ztf_2026062_programid1", "ztf_"])
def test_what_is_no_date_is_not_of_the_family(name: str) -> None:
    assert not Topics.parse(ZTF).holds(name)


@pytest.mark.parametrize(
    "text",
    ["^ztf.*", "ztf_{YYYY}", "a{n}b{n}", "x@y", "a/b", "{YYYYMMDD:0}", "a" * 250, "!", "!^x"],
)
def test_what_is_neither_a_name_nor_a_family_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="family of topics"):
        Topics.parse(text)
    with pytest.raises(ValueError, match="family of topics"):
        Settings(topics=text)


def test_a_later_version_of_a_name_is_unread() -> None:
    existing = {"lsst-alerts-v9", "lsst-alerts-v10", "lsst-alerts-v11", "lsst-alerts-v12", "x"}
    assert Topics.parse("lsst-alerts-v11").unread(existing, NOW) == {"lsst-alerts-v12": RUBIN}
    assert Topics.parse(RUBIN).unread(existing, NOW) == {}
    assert Topics.parse("lsst-alerts-v11,!lsst-alerts-v12").unread(existing, NOW) == {}
    assert Topics.parse(f"lsst-alerts-v11,!{RUBIN}").unread(existing, NOW) == {}


def test_a_later_night_of_a_name_is_unread() -> None:
    existing = nights("20260627", "20260628", "20260629")
    unread = Topics.parse("ztf_20260628_programid1").unread(existing, NOW)
    assert unread == dict.fromkeys(nights("20260629"), ZTF)


def test_another_programme_is_unread_while_it_is_new() -> None:
    second = nights("20260401", "20260628", programme=2)
    topics = Topics.parse(ZTF)
    expected = dict.fromkeys(nights("20260628", programme=2), "ztf_{YYYYMMDD}_programid2")
    assert topics.unread(second | nights("20260628"), NOW) == expected
    both = Topics.parse(f"{ZTF},!ztf_{{YYYYMMDD}}_programid2")
    assert both.unread(second, NOW) == {}
    assert both.current(second, NOW) == set()


def test_what_other_sources_read_is_known() -> None:
    existing = nights("20260628", programme=2) | {"lsst-alerts-v12", "lsst-alerts-v13"}
    others = Topics.parse("ztf_{YYYYMMDD}_programid2,lsst-alerts-v13")
    topics = Topics.parse(f"{ZTF},lsst-alerts-v11")
    assert topics.beside(others).unread(existing, NOW) == {"lsst-alerts-v12": RUBIN}
    assert topics.beside(others).current(existing, NOW) == {"lsst-alerts-v11"}


def test_a_thousand_topics_are_looked_through_soon() -> None:
    """A source does so every 3 s. Kafka may advertise the nights of years, and some programmes."""
    days = [f"{date(2024, 1, 1) + timedelta(each):%Y%m%d}" for each in range(500)]
    existing = set().union(*(nights(*days, programme=each) for each in (1, 2, 3)))
    topics = Topics.parse(f"{ZTF},lsst-alerts-v11")
    begin = time.process_time()
    for _ in range(3):
        topics.unread(existing, NOW), topics.silent(existing, NOW), topics.current(existing, NOW)
    seconds = (time.process_time() - begin) / 3
    print(f"{1000 * seconds:.1f} ms")
    assert seconds < 0.2


def test_a_family_is_silent_if_another_like_it_is_two_nights_ahead() -> None:
    first, second = nights("20260626"), nights("20260627", programme=2)
    topics = Topics.parse(f"{ZTF},!ztf_{{YYYYMMDD}}_programid2,{RUBIN}")
    assert topics.silent(first | second, NOW) == {}
    (newer,) = nights("20260628", programme=2)
    assert topics.silent(first | second | {newer}, NOW) == {ZTF: newer}
    assert topics.silent({newer}, NOW) == {ZTF: newer}
    assert topics.silent(first, NOW) == topics.silent({"lsst-alerts-v12"}, NOW) == {}
    assert topics.silent({newer}, NOW + timedelta(30)) == {}  # both are


def test_a_topic_is_gone_only_if_others_of_its_family_are_seen() -> None:
    topics = Topics.parse(ZTF)
    (old,), (new,) = nights("20260601"), nights("20260628")
    assert topics.gone(old, {new})
    assert not topics.gone(old, {old, new})
    assert not topics.gone(old, {"x"})  # this login may see none of them
    assert not topics.gone("x", {new})


@given(st.dates(date(2018, 1, 1), date(2040, 1, 1)), st.integers(1, 999), st.integers(-1200, 1200))
def test_a_night_is_read_if_it_is_in_the_window(today: date, window: int, offset: int) -> None:
    name = f"ztf_{today - timedelta(offset):%Y%m%d}_programid1"
    now = datetime(today.year, today.month, today.day, tzinfo=UTC)
    topics = Topics.parse(f"ztf_{{YYYYMMDD:{window}}}_programid1")
    assert (topics.current({name}, now) == {name}) == (-1 <= offset <= window)
    assert topics.holds(name)
