"""Lets Pointsman choose the model of requests to the LiteLLM proxy.

1. Put this file beside the proxy's config.yaml and install the stubs into the
   proxy's environment: pip install ./gen/python
2. Give the proxy a model for each target's `model` in Pointsman's configuration,
   and one named `auto`, which is the strong one: what callers ask for when the
   choice is to be made, and what answers when it cannot be. See config.yaml here.
3. Register the hook:

       litellm_settings:
         callbacks: pointsman_hook.hook

Requests for any other model are left alone. The decision stands in the request's
metadata (pointsman_target, pointsman_basis, pointsman_decision_id), so that it
reaches LiteLLM's logs.

Environment: POINTSMAN_ADDRESS (127.0.0.1:50051), POINTSMAN_AUTO_MODEL (auto),
DECIDE_TIMEOUT_MS (500).
"""

import logging
import os
from typing import Any

import grpc
from litellm.integrations.custom_logger import CustomLogger
from pointsman.v1 import decision_pb2, decision_pb2_grpc

log = logging.getLogger("pointsman")

# A role that is not here is not a user.
ROLES = {
    "system": decision_pb2.ROLE_SYSTEM,
    "developer": decision_pb2.ROLE_DEVELOPER,
    "user": decision_pb2.ROLE_USER,
    "assistant": decision_pb2.ROLE_ASSISTANT,
    "tool": decision_pb2.ROLE_TOOL,
}


class PointsmanHook(CustomLogger):
    def __init__(self) -> None:
        super().__init__()
        self.address = os.environ.get("POINTSMAN_ADDRESS", "127.0.0.1:50051")
        self.auto_model = os.environ.get("POINTSMAN_AUTO_MODEL", "auto")
        self.timeout = int(os.environ.get("DECIDE_TIMEOUT_MS", "500")) / 1000  # seconds
        self._stub: Any = None

    def stub(self) -> Any:
        # Made at the first request: a channel belongs to the event loop it is made in.
        if self._stub is None:
            self._stub = decision_pb2_grpc.DecisionServiceStub(grpc.aio.insecure_channel(self.address))
        return self._stub

    async def async_pre_call_hook(self, user_api_key_dict: Any, cache: Any, data: dict, call_type: str) -> dict:
        if data.get("model") != self.auto_model or "messages" not in data:
            return data
        try:
            decision = await self.stub().Decide(
                decision_pb2.DecideRequest(conversation=conversation(data["messages"])),
                timeout=self.timeout,
                metadata=trace(data),
            )
        except Exception as error:  # whatever goes wrong, `auto` answers: the strong model
            code = error.code() if isinstance(error, grpc.aio.AioRpcError) else type(error).__name__
            log.warning("no decision, model %s answers: %s", self.auto_model, code)
            return data
        data["model"] = decision.model
        metadata = data.get("metadata") or {}
        data["metadata"] = metadata | {
            "pointsman_target": decision.target,
            "pointsman_basis": decision_pb2.Basis.Name(decision.basis),
            "pointsman_decision_id": decision.decision_id,
        }
        return data


def trace(data: dict) -> tuple[tuple[str, str], ...]:
    """The caller's trace context, for Pointsman's spans."""
    headers = (data.get("proxy_server_request") or {}).get("headers") or {}
    return tuple((name, headers[name]) for name in ("traceparent", "tracestate") if name in headers)


def conversation(messages: list[dict[str, Any]]) -> decision_pb2.Conversation:
    return decision_pb2.Conversation(
        messages=[
            decision_pb2.ChatMessage(
                role=ROLES.get(message.get("role"), decision_pb2.ROLE_UNSPECIFIED),
                parts=parts(message.get("content")),
            )
            for message in messages
        ]
    )


def parts(content: Any) -> list[decision_pb2.ContentPart]:
    """The content of an OpenAI message is a string, null, or a list of parts."""
    if isinstance(content, str):
        return [decision_pb2.ContentPart(text=content)]
    return [
        decision_pb2.ContentPart(text=part["text"])
        if part.get("type") == "text"
        # Only text is scored: say that there was something.
        else decision_pb2.ContentPart(other=part.get("type", ""))
        for part in content or []
    ]


hook = PointsmanHook()
