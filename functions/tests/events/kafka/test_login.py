"""User and password from files: which options a client gets, and when it gets new ones."""

from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.events.kafka.login import KafkaLogin
from tests.support.mounted_secret import MountedSecret, kafka_files


class Client:
    """Notes what a client of Kafka is given."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []

    def set_sasl_credentials(self, user: str, password: str) -> None:
        self.given.append((user, password))


def renew(login: KafkaLogin, client: Client) -> None:
    login.renew(client)  # type: ignore[arg-type]  # it has the one method that is called


@pytest.fixture
def secret(tmp_path: Path) -> MountedSecret:
    return MountedSecret(tmp_path / "login", kafka_files("night", "old"))


def test_files_give_the_login(secret: MountedSecret) -> None:
    settings = Settings(kafka_keys=str(secret), kafka_options={"security.protocol": "SASL_SSL"})
    assert KafkaLogin(settings).options == {
        "security.protocol": "SASL_SSL",
        "sasl.username": "night",
        "sasl.password": "old",
        "sasl.mechanism": "SCRAM-SHA-512",
    }


def test_a_client_gets_a_login_once_it_changes(secret: MountedSecret) -> None:
    login, client = KafkaLogin(Settings(kafka_keys=str(secret))), Client()
    renew(login, client)
    secret.change({})
    renew(login, client)
    secret.change(kafka_files("twilight", "new"))
    for _ in range(2):
        renew(login, client)
    assert client.given == [("twilight", "new")]


def test_options_that_name_a_user_stay(secret: MountedSecret) -> None:
    own = {"sasl.username": "me", "sasl.password": "mine", "sasl.mechanism": "PLAIN"}
    login, client = KafkaLogin(Settings(kafka_keys=str(secret), kafka_options=own)), Client()
    assert login.options == own
    secret.change(kafka_files("twilight", "new"))
    renew(login, client)
    assert client.given == []


def test_a_secret_may_have_the_password_only(tmp_path: Path) -> None:
    """Strimzi's has: the user and the mechanism are options then."""
    secret = MountedSecret(tmp_path / "login", {"password": "old"})
    own = {"sasl.username": "night", "sasl.mechanism": "SCRAM-SHA-512"}
    login, client = KafkaLogin(Settings(kafka_keys=str(secret), kafka_options=own)), Client()
    assert login.options == own | {"sasl.password": "old"}
    renew(login, client)
    secret.change({"password": "new"})
    renew(login, client)
    assert client.given == [("night", "new")]
    secret.change({})
    with pytest.raises(SetupError, match=r"has no files password; on a cluster"):
        KafkaLogin(Settings(kafka_keys=str(secret), kafka_options=own))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"has no files user, password, type"):
        KafkaLogin(Settings(kafka_keys=str(tmp_path)))


def test_without_a_directory_the_options_stay() -> None:
    login, client = KafkaLogin(Settings(kafka_options={"a": "b"})), Client()
    assert login.options == {"a": "b"}
    renew(login, client)
    assert client.given == []
