"""Run by test_brokers.py: asks `stampede_client.mcp_server` by the SDK's client; prints JSON."""

import asyncio
import base64
import json
import os
import sys
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

url, ztf, candid, rubin, source, token = sys.argv[1:]
PARAMETERS = StdioServerParameters(
    command=sys.executable,
    args=["-m", "stampede_client.mcp_server", "--url", url],
    env={"PYTHONPATH": os.environ["PYTHONPATH"], "STAMPEDE_TOKEN": token},
)


async def main() -> dict[str, Any]:
    """What each tool answers, and how each failure is told."""
    found: dict[str, Any] = {}
    async with Client(stdio_client(PARAMETERS)) as client:
        tools = (await client.list_tools()).tools
        found["tools"] = [[tool.name, tool.annotations.read_only_hint] for tool in tools]
        found["described"] = all(tool.description for tool in tools)

        async def call(name: str, **arguments: Any) -> Any:
            result = await client.call_tool(name, arguments)
            if result.is_error:
                return {"error": result.content[0].text}
            content = result.content[0]
            if content.type == "image":
                return [content.mime_type, base64.b64decode(content.data)[:8].hex()]
            return result.structured_content or content.text

        found["search"] = [await call("search", text=text) for text in (ztf, candid, "10 -5")]
        found["curve"] = await call("light_curve", object_id=ztf)
        found["chosen"] = await call("light_curve", object_id=rubin, forced=True, most=5)
        found["body"] = await call("moving_object", designation="2011UW158")
        found["no body"] = await call("moving_object", designation="12")
        found["picture"] = await call("cutout", alert_id=candid, size=100)
        found["cone"] = await call("cone", position="10 -5", radius=5.0, most=1)
        found["empty"] = await call("cone", position="200 5")
        found["alert"] = await call("alert", alert_id=candid, fields=["objectId"])
        found["recent"] = await call("recent", limit=1)
        found["ledger"] = await call("ledger")
        found["docs"] = await call("docs")
        found["unknown"] = await call("search", text="12")
        found["kind"] = await call("cutout", alert_id=candid, kind="sky")
        found["most"] = await call("light_curve", object_id=ztf, most=1000)
        found["position"] = await call("cone", position="north")
    return found


print(json.dumps(asyncio.run(main())))
