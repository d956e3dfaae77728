"""Every setting, in one typed object that is made once and passed down.

Each is an environment variable with the prefix ``STAMPEDE_``, for example
``STAMPEDE_STORE=http://127.0.0.1:8400/stampede``; `K_SINK` keeps Knative's own name.
"""

from typing import Self

from pydantic_settings import BaseSettings, SettingsConfigDict

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
        env_prefix="STAMPEDE_", extra="ignore", validate_by_name=True, validate_by_alias=True
    )

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


GROUPS = {
    next(iter(group.model_fields)): (group.__doc__ or "").removeprefix("Settings: ").rstrip(".")
    for group in reversed(Settings.__bases__)
    if issubclass(group, BaseSettings)
}
"""The groups of the settings in their order, by the name of the first setting of each."""
