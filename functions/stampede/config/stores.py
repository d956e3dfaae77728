"""The stores of both sites."""

from pathlib import Path

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings


class StoreSettings(BaseSettings):
    """Settings: the store."""

    store: str = Field(
        "http://127.0.0.1:8400/stampede",
        description="where everything is stored: http(s)://HOST:PORT/BUCKET for an S3 endpoint, "
        "or file:///DIRECTORY",
    )
    access_key: str = Field(
        "", validation_alias=AliasChoices("STAMPEDE_ACCESS_KEY", "AWS_ACCESS_KEY_ID")
    )
    secret_key: SecretStr = Field(
        SecretStr(""), validation_alias=AliasChoices("STAMPEDE_SECRET_KEY", "AWS_SECRET_ACCESS_KEY")
    )
    keys: str = Field(
        "",
        description="directory with the files `access-key` and `secret-key`, in place of "
        "STAMPEDE_ACCESS_KEY and STAMPEDE_SECRET_KEY; read again when the store refuses the keys",
    )
    region: str = "us-east-1"
    ca_file: Path | None = Field(None, description="certificate authority of the S3 endpoint")


class ReplicaSettings(BaseSettings):
    """Settings: the second site."""

    replica: str = Field(
        "", description="a store like STAMPEDE_STORE, to which everything is copied"
    )
    replica_access_key: str = ""
    replica_secret_key: SecretStr = SecretStr("")
    replica_keys: str = Field("", description="directory like STAMPEDE_KEYS")
    replica_region: str = "us-east-1"
    replica_ca_file: Path | None = Field(
        None, description="certificate authority of the second site's S3 endpoint"
    )
