"""Users of Ceph's RGW with no more rights than one function needs, and the policy that gives them.

Users are made by RGW's Admin Ops API (https://docs.ceph.com/en/latest/radosgw/adminops/), for which
the store's own user needs the capability ``users=*``. What they may do says a bucket policy.

In RGW an object belongs to the user that stored it, and the bucket's owner may not read it. So the
policy also lets the owner do everything. Without the policy the owner could not read what others
stored, nor could they; a policy that is put again gives all of it back.
"""

import json
from collections.abc import Mapping
from shlex import quote
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from xml.etree import ElementTree

from stampede.errors import SetupError
from stampede.runtime.progress import Progress
from stampede.store.integrity.dead_letter_offsets import DEAD_LETTERS
from stampede.store.objects.address import StoreAddress
from stampede.store.objects.probes import PROBES
from stampede.store.objects.query_jobs import QUERY_JOBS
from stampede.store.runs.schema import (
    CUTOUT_PACKS,
    CUTOUTS,
    DETECTIONS,
    MOVING,
    PACKET_PACKS,
    PACKETS,
    POSITIONS,
    THUMBNAIL_PACKS,
    THUMBNAILS,
    PackSpec,
    TableSpec,
)
from stampede.store.s3.faults import answer_of
from stampede.store.s3.signed_requests import S3Requests
from stampede.store.tables.checkpoint import CHECKPOINTS

ADMIN = "radosgw-admin"
_OURS = "stampede-"  # what the ids of our statements begin with


class Rights(NamedTuple):
    """What a function may do, by beginnings of keys. All may list the bucket."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()


def _runs(*tables: TableSpec) -> tuple[str, ...]:
    return tuple(f"tables/{table.name}/" for table in tables)


def _packs(spec: PackSpec) -> str:
    return f"{spec.prefix}/"


_IMAGES = (_packs(CUTOUT_PACKS), *_runs(CUTOUTS))
_POINTS = ("alerts/", _packs(PACKET_PACKS), *_runs(DETECTIONS, PACKETS, POSITIONS, MOVING))

ROLES: dict[str, Rights] = {
    "read": Rights(reads=("",), writes=(QUERY_JOBS,), deletes=(QUERY_JOBS,)),
    "alerts": Rights(writes=(*_IMAGES, *_POINTS)),
    "cutouts": Rights(writes=_IMAGES),
    "lightcurves": Rights(writes=_POINTS),
    "thumbnails": Rights(
        # Its own table, to know whether a merged pack has thumbnails.
        reads=(_packs(CUTOUT_PACKS), *_runs(THUMBNAILS), f"{CHECKPOINTS}{THUMBNAILS.name}/"),
        writes=(_packs(THUMBNAIL_PACKS), *_runs(THUMBNAILS), PROBES),
    ),
    "deadletters": Rights(writes=(DEAD_LETTERS,)),
}
"""The functions that can have users of their own. All others change what others stored."""


class Keys(NamedTuple):
    """The keys of a user."""

    access_key: str
    secret_key: str


class S3Users:
    """The users of one bucket's roles.

    Parameters
    ----------
    admin
        How people call Ceph's `radosgw-admin` here, for messages.
    """

    def __init__(self, site: StoreAddress, admin: str = ADMIN) -> None:
        self._by_hand = admin
        self._requests = S3Requests(site)
        self._bucket = urlsplit(site.url).path.strip("/")

    def user(self, role: str, owner: str) -> str:
        """Id of a role's user, in the owner's tenant. RGW's users are common to all buckets."""
        tenant = owner.rpartition("$")[0]
        name = f"stampede-{self._bucket}-{role}"
        return f"{tenant}${name}" if tenant else name

    def make(self, progress: Progress) -> dict[str, Keys]:
        """Make the users and the policy, as far as they are missing; the keys by role.

        Raises
        ------
        SetupError
            The endpoint has no Admin Ops API, or not for these keys, or they are not the owner's.
        StoreDown
            It does not answer.
        """
        owner = self.owner()
        keys = {role: self._make_user(role, owner, progress) for role in ROLES}
        self._put_statements(self.policy(owner), progress)
        return keys

    def remove(self, progress: Progress) -> None:
        """Remove the users. What they stored stays readable, by the policy's rule for the owner.

        Raises as `make`.
        """
        owner = self.owner()
        self._put_statements([self.policy(owner)[0]], progress)
        for role in ROLES:
            response = self._admin("DELETE", owner, uid=self.user(role, owner))
            if response is not None:
                progress(f"user {self.user(role, owner)}: removed")

    def policy(self, owner: str) -> list[dict[str, Any]]:
        """The statements of the bucket policy; the first is the owner's."""
        bucket = f"arn:aws:s3:::{self._bucket}"
        statements = [_statement("owner", owner, "s3:*", [bucket, f"{bucket}/*"])]
        for role, rights in ROLES.items():
            allowed = {
                "lists": ("s3:ListBucket", [bucket]),
                "reads": ("s3:GetObject", [f"{bucket}/{prefix}*" for prefix in rights.reads]),
                "writes": ("s3:PutObject", [f"{bucket}/{prefix}*" for prefix in rights.writes]),
                "deletes": (
                    "s3:DeleteObject",
                    [f"{bucket}/{prefix}*" for prefix in rights.deletes],
                ),
            }
            statements += [
                _statement(f"{role}-{verb}", self.user(role, owner), action, resources)
                for verb, (action, resources) in allowed.items()
                if resources
            ]
        return statements

    def owner(self) -> str:
        """The user that owns the bucket. Raises `SetupError`, `StoreDown`."""
        response = self._requests.send("GET", f"/{self._bucket}", {"acl": ""})
        if response.status >= 300:
            raise SetupError(
                f"{self._requests.endpoint} does not say who owns bucket {self._bucket}: it "
                f"answered {answer_of(response.status, response.data)}; use the keys of the user "
                "that made it"
            )
        owner = ElementTree.fromstring(response.data).findtext("./{*}Owner/{*}ID")
        if not owner:
            raise SetupError(f"{self._requests.endpoint} does not say whose {self._bucket} is")
        return owner

    def _make_user(self, role: str, owner: str, progress: Progress) -> Keys:
        user = self.user(role, owner)
        found = self._admin("GET", owner, uid=user)
        if found is None:
            shown = {"display-name": f"Stampede: {role} of {self._bucket}", "max-buckets": "-1"}
            found = self._admin("PUT", owner, uid=user, **shown) or {}
            progress(f"user {user}: made")
        else:
            progress(f"user {user}: is there")
        for key in found.get("keys", ()):
            return Keys(key["access_key"], key["secret_key"])
        command = f"{self._by_hand} key create --uid={quote(user)}"
        raise SetupError(f"user {user} has no keys: {command}")

    def _admin(self, method: str, owner: str, **query: str) -> dict[str, Any] | None:
        """Call the Admin Ops API; None if there is no such user."""
        response = self._requests.send(method, "/admin/user", {"format": "json", **query})
        if response.status == 404 and b"NoSuchUser" in response.data:
            return None
        if response.status >= 300:
            raise SetupError(
                f"{self._requests.endpoint} lets us make no users: it answered "
                f"{answer_of(response.status, response.data)}; on Ceph, allow it for a while: "
                f"{self._by_hand} caps add --uid={quote(owner)} --caps='users=*'"
            )
        return json.loads(response.data) if response.data else {}

    def _put_statements(self, statements: list[dict[str, Any]], progress: Progress) -> None:
        """Replace our statements of the bucket's policy; those of others stay."""
        path, query = f"/{self._bucket}", {"policy": ""}
        response = self._requests.send("GET", path, query)
        before: Mapping[str, Any] = json.loads(response.data) if response.status == 200 else {}
        kept = [s for s in before.get("Statement", ()) if not s.get("Sid", "").startswith(_OURS)]
        policy = {"Version": "2012-10-17", "Statement": [*kept, *statements]}
        if policy["Statement"] == before.get("Statement"):
            progress(f"policy of bucket {self._bucket}: is there")
            return
        response = self._requests.send("PUT", path, query, json.dumps(policy).encode())
        if response.status >= 300:
            raise SetupError(
                f"{self._requests.endpoint} does not take a policy of bucket {self._bucket}: it "
                f"answered {answer_of(response.status, response.data)}"
            )
        progress(f"policy of bucket {self._bucket}: {len(statements)} statements of Stampede")


def _statement(name: str, user: str, action: str, resources: list[str]) -> dict[str, Any]:
    tenant, _, name_there = user.rpartition("$")
    return {
        "Sid": f"{_OURS}{name}",
        "Effect": "Allow",
        "Principal": {"AWS": [f"arn:aws:iam::{tenant}:user/{name_there}"]},
        "Action": [action],
        "Resource": resources,
    }
