import pytest

from stampede.errors import SetupError
from stampede_bench.storage.stress_place import Place, place_in

ALL = {
    "STAMPEDE_STRESS_PODS": "8",
    "JOB_COMPLETION_INDEX": "7",
    "STAMPEDE_STRESS_RUN": "3f0c-a",
}


def test_a_job_gives_a_pod_its_place() -> None:
    assert place_in(ALL) == Place(7, 8, "3f0c-a")


@pytest.mark.parametrize("environment", [{}, ALL | {"STAMPEDE_STRESS_PODS": "1"}])
def test_one_pod_is_alone(environment: dict[str, str]) -> None:
    assert place_in(environment) is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("STAMPEDE_STRESS_PODS", "0", "STAMPEDE_STRESS_PODS is '0', not a whole number from 1 on"),
        ("STAMPEDE_STRESS_PODS", "", "STAMPEDE_STRESS_PODS is '', not a whole number"),
        ("STAMPEDE_STRESS_PODS", "²", "STAMPEDE_STRESS_PODS is '²', not a whole number"),
        ("JOB_COMPLETION_INDEX", "", "JOB_COMPLETION_INDEX is '', not a whole number from 0 on"),
        ("JOB_COMPLETION_INDEX", "-1", "JOB_COMPLETION_INDEX is '-1', not a whole number"),
        ("JOB_COMPLETION_INDEX", "8", "JOB_COMPLETION_INDEX is 8, but STAMPEDE_STRESS_PODS is 8"),
        ("STAMPEDE_STRESS_RUN", "", "STAMPEDE_STRESS_RUN is '': set it"),
        ("STAMPEDE_STRESS_RUN", "a/b", "STAMPEDE_STRESS_RUN is 'a/b'"),
    ],
)
def test_what_is_no_place_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(SetupError) as raised:
        place_in(ALL | {name: value})
    assert message in raised.value.message


@pytest.mark.parametrize("pods", [1, 8, 32, 1500])
@pytest.mark.parametrize("total", [32, 1000])
def test_the_shares_are_all_clients_and_every_key_once(pods: int, total: int) -> None:
    places = [Place(pod, pods, "a") for pod in range(pods)]
    shares = [place.share(total) for place in places]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1
    keys = [f"{number}" for number in range(total)]
    shared = [place.keys(keys) for place in places]
    assert sorted(key for some in shared for key in some) == sorted(keys)
    assert [len(some) for some in shared] == shares
