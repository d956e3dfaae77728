"""Bucket notifications, one of each kind that S3 endpoints send."""

import json
from typing import Any
from urllib.parse import quote_plus

REQUEST = "fafd9345-158a-4c93-abf2-24cc177060dd.4107.11632945329882408661"
HOST = "100b-default-default"


def record(
    key: str = "packs/61000/0a.parquet", name: str = "ObjectCreated:Put", **more: Any
) -> dict[str, Any]:
    """The record of one object by the RGW of Ceph 16.2."""
    return {
        "eventVersion": "2.2",
        "eventSource": "ceph:s3",
        "awsRegion": "",
        "eventTime": "2026-03-01T11:55:12.219226Z",
        "eventName": name,
        "userIdentity": {"principalId": "stampede"},
        "requestParameters": {"sourceIPAddress": ""},
        "responseElements": {"x-amz-request-id": REQUEST, "x-amz-id-2": HOST},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "stampede-packs",
            "bucket": {"name": "stampede", "arn": "arn:aws:s3:::stampede"},
            "object": {"key": key, "size": 1000, "eTag": "9dd4e461268c8034f5c8564e155c67a6"},
        },
        "eventId": "1795175712.257089.9dd4e461268c8034f5c8564e155c67a6",
        "opaqueData": "",
    } | more


def records(*items: dict[str, Any]) -> bytes:
    return json.dumps({"Records": items}).encode()


def event_headers(kind: str) -> dict[str, str]:
    """The headers of a CloudEvent in binary mode."""
    return {
        "content-type": "application/json",
        "ce-specversion": "1.0",
        "ce-type": kind,
        "ce-time": "2026-03-01T11:55:12.219226Z",
        "ce-id": f"{REQUEST}.{HOST}",
        "ce-source": "ceph:s3..stampede",
        "ce-subject": "packs/61000/0a.parquet",
    }


def encoded(source: str, key: str = "packs/61000/0a.parquet") -> dict[str, Any]:
    """The record of an endpoint that percent-encodes keys, as S3 says; MinIO also the slashes."""
    safe = "" if source == "minio:s3" else "/"
    return record(quote_plus(key, safe=safe), eventSource=source)


JSON = {"content-type": "application/json"}
RGW = event_headers("com.amazonaws.ObjectCreated:Put")
ADAPTER = event_headers("com.amazonaws.s3.ObjectCreated:Put")
STRUCTURED = {"content-type": "application/cloudevents+json; charset=utf-8"}


def structured(data: dict[str, Any]) -> bytes:
    attributes = {name[3:]: value for name, value in ADAPTER.items() if name.startswith("ce-")}
    return json.dumps(attributes | {"datacontenttype": "application/json", "data": data}).encode()


DIALECTS = {
    "plain, RGW 16.2": (JSON, records(record())),
    "plain, s3: before the name": (JSON, records(record(name="s3:ObjectCreated:Put"))),
    "plain, no content type": ({}, records(record())),
    "cloudevents=true, RGW 17": (RGW, records(record())),
    "plain, percent-encoded, S3": (JSON, records(encoded("aws:s3"))),
    "plain, percent-encoded, MinIO": (JSON, records(encoded("minio:s3"))),
    "the adapter, the record": (ADAPTER, json.dumps(record()).encode()),
    "the adapter, a list of it": (ADAPTER, records(record())),
    "the adapter, structured": (STRUCTURED, structured(record())),
}
