"""The user and password with which clients log in to Kafka, from files that may change."""

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from stampede.config.secret_files import read_keys
from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.telemetry.logs import get_logger

log = get_logger()

OPTIONS = ("sasl.username", "sasl.password", "sasl.mechanism")
FILES = ("user", "password", "type")


class KafkaLogin:
    """The login of one client of Kafka.

    Attributes
    ----------
    options
        The options of the settings, and the user, password and mechanism of the files.

    Raises
    ------
    SetupError
        A file is missing or may not be read.
    """

    def __init__(self, settings: Settings) -> None:
        own = OPTIONS[0] in settings.kafka_options
        self._directory = "" if own else settings.kafka_keys
        self._given = read_keys(self._directory, FILES)
        if self._directory and self._given is None:
            raise SetupError(
                f"{self._directory} has no files {', '.join(FILES)}; on a cluster the Secret "
                "of sources.NAME.sasl.existingSecret must be in the release's namespace"
            )
        login = dict(zip(OPTIONS, self._given or (), strict=False))
        self.options: dict[str, str] = login | settings.kafka_options

    def renew(self, client: Consumer | AdminClient) -> None:
        """Give a client the user and password that are in the files now.

        Connections that it has stay: Kafka asks for a password only when it is connected to.
        """
        try:
            found = read_keys(self._directory, FILES)
        except SetupError as error:
            log.warning("new keys cannot be used", directory=self._directory, error=error.message)
            return
        if found and found != self._given:
            self._given = found
            client.set_sasl_credentials(*found[:2])
            log.info("keys were read again", directory=self._directory)
