"""Every setting, in one typed object that is made once and passed down.

Each is an environment variable with the prefix ``STAMPEDE_``, for example
``STAMPEDE_STORE=http://127.0.0.1:8400/stampede``; `K_SINK` keeps Knative's own name.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from stampede.addresses import shown
from stampede.config.functions import (
    AlertSettings,
    BatchSettings,
    EndpointSettings,
    SenderSettings,
    TraceSettings,
)
from stampede.config.maintenance import (
    CompactionSettings,
    ProofSettings,
    ReconcileSettings,
    ScrubSettings,
)
from stampede.config.reading import (
    AccessSettings,
    CatalogueSettings,
    CommandSettings,
    ReadSettings,
    TapSettings,
)
from stampede.config.sources import KafkaSettings, NotificationSettings, SourceSettings
from stampede.config.stores import ReplicaSettings, StoreSettings

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class Settings(  # pydantic takes the fields of the last base first
    AccessSettings,
    TapSettings,
    ReadSettings,
    CatalogueSettings,
    CommandSettings,
    ScrubSettings,
    ProofSettings,
    ReconcileSettings,
    CompactionSettings,
    NotificationSettings,
    SourceSettings,
    KafkaSettings,
    TraceSettings,
    BatchSettings,
    SenderSettings,
    EndpointSettings,
    AlertSettings,
    ReplicaSettings,
    StoreSettings,
):
    """The settings of all functions and commands; each reads those it needs."""

    model_config = SettingsConfigDict(
        env_prefix="STAMPEDE_",
        extra="ignore",
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,
    )

    def __repr_args__(self) -> Any:
        """As pydantic's, without what `without_secrets` leaves out."""
        return [(name, without_secrets(value)) for name, value in super().__repr_args__()]

    def of_second_site(self) -> Self:
        """The same settings with the store of the second site."""
        return self.model_copy(
            update={
                "store": self.replica,
                "access_key": self.replica_access_key,
                "secret_key": self.replica_secret_key,
                "keys": self.replica_keys,
                "region": self.replica_region,
                "ca_file": self.replica_ca_file,
            }
        )


_SECRET_OPTION = re.compile(r"password|passphrase|secret|key\.pem|oauthbearer\.config")
HIDDEN = "..."


def without_secrets(value: Any) -> Any:
    """The value of a setting for people.

    URLs are without user and password, options of librdkafka without the values of keys.
    """
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, list | tuple):
        return [without_secrets(each) for each in value]
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if _SECRET_OPTION.search(str(name)) else without_secrets(each)
            for name, each in value.items()
        }
    return value


def input_of(error: "ErrorDetails") -> Any:
    """The wrong value of a setting for people, of an error that pydantic has found."""
    name, *within = error["loc"]
    field = Settings.model_fields.get(str(name))
    if (field and field.annotation is SecretStr) or any(
        map(_SECRET_OPTION.search, map(str, within))
    ):
        return HIDDEN
    return without_secrets(error["input"])


GROUPS = {
    next(iter(group.model_fields)): (group.__doc__ or "").removeprefix("Settings: ").rstrip(".")
    for group in reversed(Settings.__bases__)
    if issubclass(group, BaseSettings)
}
"""The groups of the settings in their order, by the name of the first setting of each."""
