"""Traefik without the 180 DNS providers that it could request certificates from.

Go would compile these providers and their clouds' SDKs for nothing.
"""

import shutil
from pathlib import Path

from e2e.cluster.built import go_modules

_LEGO = "github.com/go-acme/lego/v4"
_NO_DNS_PROVIDERS = """\
package dns

import (
	"fmt"

	"github.com/go-acme/lego/v4/challenge"
)

func NewDNSChallengeProviderByName(name string) (challenge.Provider, error) {
	return nil, fmt.Errorf("built without the DNS provider %q", name)
}
"""


def write_go_mod(directory: Path) -> Path:
    """Write a ``go.mod``, in an empty directory, that replaces the module with the providers."""
    lego = directory / "lego"
    go_modules.copy_sources(
        go_modules.pinned_sources(_LEGO),
        lego,
        ignore=lambda path, names: names if path.endswith("providers/dns") else (),
    )
    (lego / "providers" / "dns" / "none.go").write_text(_NO_DNS_PROVIDERS)
    for name in ("go.mod", "go.sum"):
        shutil.copyfile(go_modules.PROGRAMS_MODULE / name, directory / name)
    go_mod = directory / "go.mod"
    with go_mod.open("a") as file:
        file.write(f"\nreplace {_LEGO} => {lego}\n")
    return go_mod
