"""Headers by which a browser does no more with a response than show it."""

POLICY = b"content-security-policy"
SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
NOTHING = (POLICY, b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
"""The policy of responses that set none themselves, as pages do. Browsers show images and JSON with
a style of their own."""
