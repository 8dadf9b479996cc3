"""A minimal LLM gateway.

An OpenAI-style chat request comes in over HTTP, Pointsman says which model it
needs, and the request goes to that model's server as it is, but for its model.
When Pointsman cannot be asked, the strong model answers.
"""

import asyncio
import json
import logging
import os
from typing import Any, NamedTuple

import aiohttp
import grpc
from aiohttp import web
from pointsman.v1 import decision_pb2, decision_pb2_grpc

log = logging.getLogger("gateway")

# The largest request that is read, as large as the largest that Pointsman takes.
MAX_BODY = 16 << 20
# What goes on to Pointsman and to the model. With OpenTelemetry its gRPC and HTTP
# instrumentations do this.
TRACE_HEADERS = ("traceparent", "tracestate")

# A role that is not here is not a user.
ROLES = {
    "system": decision_pb2.ROLE_SYSTEM,
    "developer": decision_pb2.ROLE_DEVELOPER,
    "user": decision_pb2.ROLE_USER,
    "assistant": decision_pb2.ROLE_ASSISTANT,
    "tool": decision_pb2.ROLE_TOOL,
}


class Choice(NamedTuple):
    target: str
    model: str
    basis: str


class Gateway:
    def __init__(
        self,
        decisions: "decision_pb2_grpc.DecisionServiceAsyncStub",
        http: aiohttp.ClientSession,
        upstreams: dict[str, str],
        strong_model: str,
        timeout: float,
    ) -> None:
        self.decisions = decisions
        self.http = http
        # The base URL of each target by name. "strong" is the one that answers
        # when no decision can be had.
        self.upstreams = upstreams
        self.strong_model = strong_model
        self.timeout = timeout  # seconds

    async def chat(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.json()
            messages = conversation(body["messages"])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise web.HTTPBadRequest(text='the body is not JSON with "messages"') from None
        trace = {name: request.headers[name] for name in TRACE_HEADERS if name in request.headers}
        choice = await self.choose(messages, trace)
        body["model"] = choice.model

        headers = dict(trace)
        if "Authorization" in request.headers:
            headers["Authorization"] = request.headers["Authorization"]
        url = self.upstreams[choice.target] + "/chat/completions"
        async with self.http.post(url, json=body, headers=headers) as upstream:
            reply = web.StreamResponse(
                status=upstream.status,
                headers={
                    "Content-Type": upstream.headers.get("Content-Type", "application/json"),
                    "X-Pointsman-Target": choice.target,
                    "X-Pointsman-Basis": choice.basis,
                },
            )
            await reply.prepare(request)
            async for chunk in upstream.content.iter_any():  # as it comes: it may be a stream
                await reply.write(chunk)
        await reply.write_eof()
        return reply

    async def choose(self, messages: decision_pb2.Conversation, trace: dict[str, str]) -> Choice:
        """Asks Pointsman. Whatever goes wrong, there is an answer: the strong model."""
        try:
            decision = await self.decisions.Decide(
                decision_pb2.DecideRequest(conversation=messages),
                timeout=self.timeout,
                metadata=tuple(trace.items()),
            )
        except grpc.aio.AioRpcError as error:
            log.warning("no decision, the strong model answers: %s", error.code())
            return Choice("strong", self.strong_model, "NO_DECISION")
        if decision.target not in self.upstreams:
            log.warning("no server for target %r, the strong model answers", decision.target)
            return Choice("strong", self.strong_model, "UNKNOWN_TARGET")
        return Choice(decision.target, decision.model, decision_pb2.Basis.Name(decision.basis))


def conversation(messages: list[dict[str, Any]]) -> decision_pb2.Conversation:
    return decision_pb2.Conversation(
        messages=[
            decision_pb2.ChatMessage(
                role=ROLES.get(message["role"], decision_pb2.ROLE_UNSPECIFIED),
                parts=parts(message.get("content")),
            )
            for message in messages
        ]
    )


def parts(content: str | list[dict[str, Any]] | None) -> list[decision_pb2.ContentPart]:
    """The content of an OpenAI message is a string, null, or a list of parts."""
    if isinstance(content, str):
        return [decision_pb2.ContentPart(text=content)]
    return [
        decision_pb2.ContentPart(text=part["text"])
        if part["type"] == "text"
        # Only text is scored: say that there was something.
        else decision_pb2.ContentPart(other=part["type"])
        for part in content or []
    ]


async def main() -> None:
    host, _, port = os.environ.get("LISTEN", "127.0.0.1:8080").rpartition(":")
    async with (
        grpc.aio.insecure_channel(os.environ.get("POINTSMAN_ADDRESS", "127.0.0.1:50051")) as channel,
        aiohttp.ClientSession(json_serialize=json.dumps) as http,
    ):
        gateway = Gateway(
            decision_pb2_grpc.DecisionServiceStub(channel),
            http,
            {
                "strong": os.environ.get("STRONG_URL", "http://127.0.0.1:8000/v1"),
                "weak": os.environ.get("WEAK_URL", "http://127.0.0.1:8000/v1"),
            },
            os.environ.get("STRONG_MODEL", "provider/strong-model"),
            int(os.environ.get("DECIDE_TIMEOUT_MS", "500")) / 1000,
        )
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_post("/v1/chat/completions", gateway.chat)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, host, int(port)).start()
        address = runner.addresses[0]
        print(f"listening on {address[0]}:{address[1]}", flush=True)
        try:
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
