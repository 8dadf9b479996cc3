// A minimal LLM gateway: an OpenAI-style chat request comes in over HTTP, Pointsman
// says which model it needs, and the request goes to that model's server as it is,
// but for its model. When Pointsman cannot be asked, the strong model answers.
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http";
import { pipeline } from "node:stream/promises";
import type { AddressInfo } from "node:net";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Basis, type ContentPartSchema, type ConversationSchema, DecisionService, Role } from "pointsman/v1";

const env = (name: string, otherwise: string): string => process.env[name] || otherwise;

const decisions = createClient(
  DecisionService,
  createGrpcTransport({ baseUrl: `http://${env("POINTSMAN_ADDRESS", "127.0.0.1:50051")}` }),
);

// The base URL of each target by name. "strong" is the one that answers when no
// decision can be had.
const upstreams = new Map([
  ["strong", env("STRONG_URL", "http://127.0.0.1:8000/v1")],
  ["weak", env("WEAK_URL", "http://127.0.0.1:8000/v1")],
]);
const strongModel = env("STRONG_MODEL", "provider/strong-model");
const timeoutMs = Number(env("DECIDE_TIMEOUT_MS", "500"));
// The largest request that is read, as large as the largest that Pointsman takes.
const maxBody = 16 << 20;

interface Choice {
  target: string;
  model: string;
  basis: string;
}

interface Part {
  type: string;
  text?: string;
}

interface Message {
  role: string;
  content?: string | Part[] | null;
}

// A role that is not here is not a user.
const roles = new Map([
  ["system", Role.SYSTEM],
  ["developer", Role.DEVELOPER],
  ["user", Role.USER],
  ["assistant", Role.ASSISTANT],
  ["tool", Role.TOOL],
]);

function conversation(messages: Message[]): MessageInitShape<typeof ConversationSchema> {
  return {
    messages: messages.map((m) => ({ role: roles.get(m.role) ?? Role.UNSPECIFIED, parts: parts(m.content) })),
  };
}

function parts(content: Message["content"]): MessageInitShape<typeof ContentPartSchema>[] {
  if (typeof content === "string") {
    return [{ kind: { case: "text", value: content } }];
  }
  return (content ?? []).map((part) =>
    part.type === "text"
      ? { kind: { case: "text", value: part.text ?? "" } }
      : // Only text is scored: say that there was something.
        { kind: { case: "other", value: part.type } },
  );
}

// traceHeaders are what goes on to Pointsman and to the model. With OpenTelemetry
// its gRPC and HTTP instrumentations do this.
function traceHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  const out: Record<string, string> = {};
  for (const name of ["traceparent", "tracestate"]) {
    const value = headers[name];
    if (typeof value === "string") {
      out[name] = value;
    }
  }
  return out;
}

// choose asks Pointsman. Whatever goes wrong, there is an answer: the strong model.
async function choose(messages: Message[], trace: Record<string, string>): Promise<Choice> {
  try {
    const decision = await decisions.decide(
      { input: { case: "conversation", value: conversation(messages) } },
      { timeoutMs, headers: trace },
    );
    if (upstreams.has(decision.target)) {
      return { target: decision.target, model: decision.model, basis: `BASIS_${Basis[decision.basis]}` };
    }
    console.error(`no server for target ${decision.target}, the strong model answers`);
    return { target: "strong", model: strongModel, basis: "UNKNOWN_TARGET" };
  } catch (error) {
    console.error("no decision, the strong model answers:", Code[ConnectError.from(error).code]);
    return { target: "strong", model: strongModel, basis: "NO_DECISION" };
  }
}

async function readBody(request: IncomingMessage): Promise<{ messages: Message[] } | undefined> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxBody) {
      return undefined;
    }
    chunks.push(chunk);
  }
  try {
    const body = JSON.parse(Buffer.concat(chunks).toString("utf8"));
    return Array.isArray(body?.messages) ? body : undefined;
  } catch {
    return undefined;
  }
}

async function chat(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const body = await readBody(request);
  if (body === undefined) {
    response.writeHead(400).end('the body is not JSON with "messages"');
    return;
  }
  const trace = traceHeaders(request.headers);
  const choice = await choose(body.messages, trace);
  const upstream = await fetch(`${upstreams.get(choice.target)}/chat/completions`, {
    method: "POST",
    headers: {
      ...trace,
      "content-type": "application/json",
      ...(request.headers.authorization && { authorization: request.headers.authorization }),
    },
    body: JSON.stringify({ ...body, model: choice.model }),
  });
  response.writeHead(upstream.status, {
    "content-type": upstream.headers.get("content-type") ?? "application/json",
    "x-pointsman-target": choice.target,
    "x-pointsman-basis": choice.basis,
  });
  // As it comes: it may be a stream.
  await pipeline(upstream.body ?? [], response);
}

const server = createServer((request, response) => {
  if (request.method !== "POST" || request.url !== "/v1/chat/completions") {
    response.writeHead(404).end();
    return;
  }
  chat(request, response).catch((error: unknown) => {
    console.error("the model did not answer:", error);
    if (response.headersSent) {
      response.destroy();
    } else {
      response.writeHead(502).end();
    }
  });
});
const listen = env("LISTEN", "127.0.0.1:8080");
const colon = listen.lastIndexOf(":");
server.listen(Number(listen.slice(colon + 1)), listen.slice(0, colon), () => {
  const address = server.address() as AddressInfo;
  console.log(`listening on ${address.address}:${address.port}`);
});
