"""Strict schemas of Kubernetes objects: an unknown field is an error.

A cluster is lenient. It drops unknown fields of its own kinds, and accepts anything where a CRD
leaves a field open. Here every object is closed, and open fields of CRDs get the definition of the
type that they hold, for example a pod's. CEL rules (``x-kubernetes-validations``) are not
evaluated, because they need a cluster.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from referencing import Registry
from referencing.jsonschema import DRAFT202012

Schema = dict[str, Any]

CORE = "urn:kubernetes"
OPEN = "x-kubernetes-preserve-unknown-fields"
QUANTITY = r"^[+-]?(\d+|\d+\.\d*|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$"
# Stricter definitions of types that Kubernetes defines loosely.
SCALARS: dict[str, Schema] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["integer", "string"]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {
        "anyOf": [{"type": "number"}, {"type": "string", "pattern": QUANTITY}]
    },
}


def core(name: str) -> Schema:
    """Reference to a definition of Kubernetes, for example ``core.v1.PodSpec``."""
    group = "apimachinery.pkg.apis" if name.startswith("meta.") else "api"
    return {"$ref": f"{CORE}#/definitions/io.k8s.{group}.{name}"}


# Fields with arbitrary keys that CRDs leave open, by name at any path.
TEXTS = ("annotations", "attributes", "exact", "extensions", "matchLabels", "prefix", "suffix")
# Fields that the types have and CRDs leave out, by the name of the field that holds them: a
# delivery's timeout needs the feature delivery-timeout, which is on by default.
OPENED: dict[str, dict[str, Schema]] = {"delivery": {"timeout": {"type": "string"}}}
# Filters of Triggers and EventPolicies contain filters, which a CRD cannot express.
FILTER = "urn:filter"
FILTERS: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        **{name: {"type": "array", "items": {"$ref": FILTER}} for name in ("all", "any")},
        **{
            name: {"type": "object", "additionalProperties": {"type": "string"}}
            for name in ("exact", "prefix", "suffix")
        },
        "cesql": {"type": "string"},
        "not": {"$ref": FILTER},
    },
}
# Schemas of fields that CRDs leave open, by kind and path; `*` stands for an array's items.
POD = "spec.template.spec."
SHAPES: dict[str, dict[str, Schema]] = {
    "Service": {
        "spec.template.metadata": core("meta.v1.ObjectMeta"),
        POD + "affinity": core("core.v1.Affinity"),
        POD + "securityContext": core("core.v1.PodSecurityContext"),
        POD + "tolerations.*": core("core.v1.Toleration"),
        POD + "topologySpreadConstraints.*": core("core.v1.TopologySpreadConstraint"),
        POD + "initContainers.*": core("core.v1.Container"),
        POD + "containers.*.env.*.valueFrom.fieldRef": core("core.v1.ObjectFieldSelector"),
        POD + "volumes.*.emptyDir": core("core.v1.EmptyDirVolumeSource"),
    },
    "KafkaTopic": {
        "spec.config": {
            "type": "object",
            "additionalProperties": {"type": ["boolean", "number", "string"]},
        }
    },
}


def strict(definitions: Mapping[str, Schema]) -> dict[str, Schema]:
    """Kubernetes' own definitions, closed. `core` refers to them."""
    closed = {name: close(each) for name, each in definitions.items()}
    return closed | SCALARS


def close(schema: Any, kind: str = "", path: str = "") -> Any:
    """A copy of a schema that allows no other fields.

    Parameters
    ----------
    schema
        A CRD's structural schema, or a definition of Kubernetes' OpenAPI.
    kind, path
        Where the schema applies, to look it up in `SHAPES`.
    """
    if "$ref" in schema:
        return {"$ref": CORE + schema["$ref"]}
    name = path.rpartition(".")[2]
    if shape := SHAPES.get(kind, {}).get(path):
        return shape
    closed = {key: value for key, value in schema.items() if not key.startswith("x-")}
    closed.pop("format", None)
    closed.pop("default", None)
    if schema.get("x-kubernetes-int-or-string"):
        return closed | {"type": ["integer", "string"]}
    if schema.get(OPEN) and name in TEXTS:
        return closed | {"additionalProperties": {"type": "string"}}
    if schema.get(OPEN) and path.endswith((".all.*", ".any.*", ".not")):
        return {"$ref": FILTER}
    if "properties" in schema:
        closed["properties"] = {
            key: close(value, kind, f"{path}.{key}".lstrip("."))
            for key, value in schema["properties"].items()
        }
        if schema.get(OPEN):
            closed["properties"] |= OPENED.get(name, {})
    if "items" in schema:
        closed["items"] = close(schema["items"], kind, f"{path}.*")
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        closed["additionalProperties"] = close(values, kind, f"{path}.*")
    elif schema.get("type") == "object" and values is not True:
        closed["additionalProperties"] = False
    if schema.get("nullable"):
        closed["type"] = [schema["type"], "null"]
    return closed


class Schemas:
    """Strict schemas of all kinds.

    Parameters
    ----------
    definitions
        Kubernetes' own.
    objects
        Objects of other packages. Only CustomResourceDefinitions are used.
    """

    def __init__(self, definitions: Mapping[str, Schema], objects: list[Schema]) -> None:
        known = {CORE: {"definitions": strict(definitions)}, FILTER: FILTERS}
        self._registry = Registry().with_resources(
            (name, DRAFT202012.create_resource(schema)) for name, schema in known.items()
        )
        self._schemas = dict(built_in(definitions))
        for each in objects:
            if each["kind"] == "CustomResourceDefinition":
                self._schemas |= custom(each)

    def schema(self, api_version: str, kind: str) -> Schema:
        """The strict schema of one kind."""
        return self._schemas[api_version, kind]

    def add(self, api_version: str, kind: str, schema: Schema) -> None:
        """Add the schema of a kind."""
        self._schemas[api_version, kind] = schema

    def problems(self, value: Mapping[str, Any]) -> list[str]:
        """Errors in an object, one line each."""
        which = value.get("apiVersion", ""), value.get("kind", "")
        if which not in self._schemas:
            return [f"no schema of {' '.join(which)}"]
        return self.check(self._schemas[which], value)

    def check(self, schema: Schema, value: Any) -> list[str]:
        """Errors in a value by a schema that may refer to Kubernetes' definitions."""
        validator = Draft202012Validator(schema, registry=self._registry)
        return [describe(error) for error in validator.iter_errors(value)]


def describe(error: ValidationError) -> str:
    """Path and message of an error."""
    inner = best_match([error]) or error
    return f"{'.'.join(map(str, inner.absolute_path))}: {inner.message}"


def built_in(definitions: Mapping[str, Schema]) -> Iterator[tuple[tuple[str, str], Schema]]:
    """Kubernetes' own kinds."""
    for name, definition in definitions.items():
        for each in definition.get("x-kubernetes-group-version-kind", ()):
            version = "/".join(filter(None, (each["group"], each["version"])))
            reference = {"$ref": f"{CORE}#/definitions/{name}"}
            needed = {"required": ["apiVersion", "kind", "metadata"]}
            yield (version, each["kind"]), {"allOf": [reference, needed]}


def custom(crd: Schema) -> dict[tuple[str, str], Schema]:
    """The kind of a CustomResourceDefinition, in each served version."""
    spec, found = crd["spec"], {}
    kind = spec["names"]["kind"]
    for version in spec["versions"]:
        if not version["served"]:
            continue
        # apiextensions.k8s.io/v1beta1 has one schema for all versions.
        schema = version.get("schema") or spec["validation"]
        closed = close(schema["openAPIV3Schema"], kind)
        closed["properties"] |= {
            "apiVersion": {"const": f"{spec['group']}/{version['name']}"},
            "kind": {"const": kind},
            "metadata": core("meta.v1.ObjectMeta"),
        }
        closed["required"] = ["apiVersion", "kind", "metadata"]
        found[f"{spec['group']}/{version['name']}", kind] = closed
    return found


FLAG = re.compile(r"behind a feature flag - (\S+)")


def flagged(schema: Schema, value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Fields of a value that Knative accepts only with a feature flag: path and flag."""
    if found := FLAG.search(schema.get("description", "")):
        yield path, found[1]
    elif isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                yield from flagged(inner, value[name], f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from flagged(schema.get("items", {}), inner, path)
