"""A strict schema of the part of skaffold's format that skaffold.yaml uses.

The fields come from ``docs-v2/content/en/schemas/v4beta13.json`` in skaffold's repository, with
closed objects. Add further fields of the format here when they are first used.
"""

from schemas import Schema

VERSION = "skaffold/v4beta13"


def closed(needed: str = "", /, **properties: Schema) -> Schema:
    """An object with these fields and no others; `needed` names the required ones."""
    return {
        "type": "object",
        "properties": properties,
        "required": needed.split(),
        "additionalProperties": False,
    }


def each(item: Schema) -> Schema:
    """A non-empty list."""
    return {"type": "array", "items": item, "minItems": 1}


TEXT: Schema = {"type": "string"}
TEXTS = each(TEXT)
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "integer"}
# The keys are paths with dots, as for `helm --set`.
PAIRS: Schema = {"type": "object", "additionalProperties": TEXT}

BUILD = closed(
    artifacts=each(
        closed(
            "image",
            image=TEXT,
            context=TEXT,
            requires=each(closed("image", image=TEXT, alias=TEXT)),
            docker=closed(dockerfile=TEXT, target=TEXT, buildArgs=PAIRS),
        )
    ),
    tagPolicy=closed(inputDigest=closed()),
    local=closed(push=FLAG, useBuildkit=FLAG, useDockerCLI=FLAG, concurrency=NUMBER),
)
RELEASE = closed(
    "name",
    name=TEXT,
    namespace=TEXT,
    createNamespace=FLAG,
    chartPath=TEXT,
    wait=FLAG,
    valuesFiles=TEXTS,
    setValues=PAIRS,
    setValueTemplates=PAIRS,
)
DEPLOY = closed(
    helm=closed("releases", releases=each(RELEASE)),
    kubectl=closed(),
    statusCheckDeadlineSeconds=NUMBER,
)
VERIFY = each(
    closed(
        "name container",
        name=TEXT,
        timeout=NUMBER,
        container=closed("name image", name=TEXT, image=TEXT, command=TEXTS, args=TEXTS),
        executionMode=closed(kubernetesCluster=closed()),
    )
)
PIPELINE = {
    "build": BUILD,
    "manifests": closed(rawYaml=TEXTS),
    "deploy": DEPLOY,
    "verify": VERIFY,
}
PATCH = closed("path", op={"enum": ["add", "remove", "replace"]}, path=TEXT, value={})
CONFIG = closed(
    "apiVersion kind",
    apiVersion={"const": VERSION},
    kind={"const": "Config"},
    metadata=closed(name=TEXT),
    requires=each(
        closed(
            configs=TEXTS,
            activeProfiles=each(closed("name", name=TEXT, activatedBy=TEXTS)),
        )
    ),
    profiles=each(closed("name", name=TEXT, patches=each(PATCH), **PIPELINE)),
    **PIPELINE,
)
