"""Sends the event of a stored object to the Broker again, as the notification relay does."""

from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from stampede.config.settings import Settings
from stampede.errors import BrokerDown
from stampede.events.auth.access import key_attribute
from stampede.events.auth.broker_token import with_token
from stampede.events.cloudevents.s3_events import headers_of, stored_event
from stampede.store.objects.object_store import ObjectInfo

TIMEOUT = urllib3.Timeout(connect=3, read=300)  # seconds; a Broker that is slow is not down


class Resender:
    """A client of the Broker at the setting `sink`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._bucket = urlsplit(settings.store).path.strip("/").rpartition("/")[2]
        retries = urllib3.Retry(2, backoff_factor=0.2)
        self._http = urllib3.PoolManager(retries=retries, timeout=TIMEOUT)

    def send(self, info: ObjectInfo) -> None:
        """Send the event of an object. Raises `BrokerDown`."""
        sink, region = self._settings.sink, self._settings.region
        event = stored_event(self._bucket, region, info.key, info.size, info.etag, info.modified)
        headers = headers_of(event) | key_attribute(self._settings)
        headers = with_token(headers, self._settings.sink_token)
        try:
            response = self._http.request("POST", sink, body=event.data, headers=headers)
        except HTTPError as error:
            raise BrokerDown(f"{sink} does not answer: {error}") from error
        if response.status >= 300:
            raise BrokerDown(f"{sink} answered {response.status} at {info.key}")
