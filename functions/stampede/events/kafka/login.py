"""The user and password with which clients log in to Kafka, from files that may change."""

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from stampede.config.secret_files import read_keys
from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.telemetry.logs import get_logger

log = get_logger()

OPTIONS = ("sasl.username", "sasl.password", "sasl.mechanism")
FILES = dict(zip(OPTIONS, ("user", "password", "type"), strict=True))


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
        own = OPTIONS[1] in settings.kafka_options
        self._directory = "" if own else settings.kafka_keys
        # A Secret may have the password only, as those that Strimzi makes.
        self._files = {o: f for o, f in FILES.items() if o not in settings.kafka_options}
        self._given = read_keys(self._directory, [*self._files.values()])
        if self._directory and self._given is None:
            raise SetupError(
                f"{self._directory} has no files {', '.join(self._files.values())}; on a cluster "
                "the Secret of sources.NAME.sasl.existingSecret must be in the release's namespace"
            )
        login = dict(zip(self._files, self._given or (), strict=False))
        self.options: dict[str, str] = login | settings.kafka_options

    def renew(self, client: Consumer | AdminClient) -> None:
        """Give a client the user and password that are in the files now.

        Connections that it has stay: Kafka asks for a password only when it is connected to.
        """
        try:
            found = read_keys(self._directory, [*self._files.values()])
        except SetupError as error:
            log.warning("new keys cannot be used", directory=self._directory, error=error.message)
            return
        if found and found != self._given:
            self._given = found
            self.options |= dict(zip(self._files, found, strict=True))
            client.set_sasl_credentials(*(self.options[option] for option in OPTIONS[:2]))
            log.info("keys were read again", directory=self._directory)
