"""Addresses as people may see them: a URL may hold a user and a password."""

import re
from urllib.parse import unquote

# Behind the scheme, or at the beginning: someone forgot the scheme. A password may have ? or #.
_USERINFO = re.compile(r"""(?:(?<=://)|^(?=[^/\s"'@]*:))[^/\s"']*@""")


def shown(text: str) -> str:
    """A URL, or a text with URLs, without the ``user:password@`` of any.

    To be used wherever a URL of a setting goes into a log, an error, a page or a report.
    """
    return _USERINFO.sub("", text)


def login_in(url: str) -> tuple[str, str]:
    """The user and password in a URL; empty if it has none."""
    found = _USERINFO.search(url)
    user, _, password = found[0][:-1].partition(":") if found else ("", "", "")
    return unquote(user), unquote(password)
