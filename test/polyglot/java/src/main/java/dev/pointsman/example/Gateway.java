package dev.pointsman.example;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonParser;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import dev.pointsman.v1.ChatMessage;
import dev.pointsman.v1.ContentPart;
import dev.pointsman.v1.Conversation;
import dev.pointsman.v1.DecideRequest;
import dev.pointsman.v1.DecisionServiceGrpc;
import dev.pointsman.v1.DecisionServiceGrpc.DecisionServiceBlockingStub;
import dev.pointsman.v1.Role;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.MetadataUtils;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * A minimal LLM gateway: an OpenAI-style chat request comes in over HTTP, Pointsman says which
 * model it needs, and the request goes to that model's server as it is, but for its model. When
 * Pointsman cannot be asked, the strong model answers.
 */
public final class Gateway {
  /** The largest request that is read, as large as the largest that Pointsman takes. */
  private static final int MAX_BODY = 16 << 20;

  /**
   * What goes on to Pointsman and to the model. With OpenTelemetry its gRPC and HTTP
   * instrumentations do this.
   */
  private static final List<String> TRACE_HEADERS = List.of("traceparent", "tracestate");

  /** A role that is not here is not a user. */
  private static final Map<String, Role> ROLES =
      Map.of(
          "system", Role.ROLE_SYSTEM,
          "developer", Role.ROLE_DEVELOPER,
          "user", Role.ROLE_USER,
          "assistant", Role.ROLE_ASSISTANT,
          "tool", Role.ROLE_TOOL);

  private record Choice(String target, String model, String basis) {}

  private final DecisionServiceBlockingStub decisions;
  private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

  /** The base URL of each target by name; "strong" answers when no decision can be had. */
  private final Map<String, String> upstreams;

  private final String strongModel;
  private final long timeoutMillis;

  private Gateway() {
    decisions =
        DecisionServiceGrpc.newBlockingStub(
            ManagedChannelBuilder.forTarget(env("POINTSMAN_ADDRESS", "127.0.0.1:50051"))
                .usePlaintext()
                .build());
    upstreams =
        Map.of(
            "strong", env("STRONG_URL", "http://127.0.0.1:8000/v1"),
            "weak", env("WEAK_URL", "http://127.0.0.1:8000/v1"));
    strongModel = env("STRONG_MODEL", "provider/strong-model");
    timeoutMillis = Long.parseLong(env("DECIDE_TIMEOUT_MS", "500"));
  }

  public static void main(String[] args) throws IOException {
    String listen = env("LISTEN", "127.0.0.1:8080");
    int colon = listen.lastIndexOf(':');
    var address =
        new InetSocketAddress(
            listen.substring(0, colon), Integer.parseInt(listen.substring(colon + 1)));
    HttpServer server = HttpServer.create(address, 0);
    server.createContext("/v1/chat/completions", new Gateway()::chat);
    server.setExecutor(Executors.newCachedThreadPool());
    server.start();
    System.out.printf(
        "listening on %s:%d%n",
        server.getAddress().getAddress().getHostAddress(), server.getAddress().getPort());
  }

  private void chat(HttpExchange exchange) throws IOException {
    try (exchange) {
      JsonObject body;
      Conversation conversation;
      try {
        body = readBody(exchange);
        conversation = conversation(body.getAsJsonArray("messages"));
      } catch (JsonParseException | IllegalStateException | NullPointerException | ClassCastException e) {
        answer(exchange, 400, "the body is not JSON with \"messages\"");
        return;
      }
      Choice choice = choose(exchange, conversation);
      body.addProperty("model", choice.model());
      HttpResponse<InputStream> upstream;
      try {
        upstream = http.send(forward(exchange, choice, body), HttpResponse.BodyHandlers.ofInputStream());
      } catch (IOException e) {
        answer(exchange, 502, "the model did not answer");
        return;
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        return;
      }
      try (InputStream in = upstream.body()) {
        var headers = exchange.getResponseHeaders();
        headers.set("Content-Type", upstream.headers().firstValue("Content-Type").orElse("application/json"));
        headers.set("X-Pointsman-Target", choice.target());
        headers.set("X-Pointsman-Basis", choice.basis());
        exchange.sendResponseHeaders(upstream.statusCode(), 0);
        var out = exchange.getResponseBody();
        byte[] buffer = new byte[16 << 10];
        for (int n; (n = in.read(buffer)) >= 0; ) { // as it comes: it may be a stream
          out.write(buffer, 0, n);
          out.flush();
        }
      }
    }
  }

  /** Asks Pointsman. Whatever goes wrong, there is an answer: the strong model. */
  private Choice choose(HttpExchange exchange, Conversation conversation) {
    var trace = new Metadata();
    for (String name : TRACE_HEADERS) {
      String value = exchange.getRequestHeaders().getFirst(name);
      if (value != null) {
        trace.put(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER), value);
      }
    }
    try {
      var decision =
          decisions
              .withDeadlineAfter(timeoutMillis, TimeUnit.MILLISECONDS)
              .withInterceptors(MetadataUtils.newAttachHeadersInterceptor(trace))
              .decide(DecideRequest.newBuilder().setConversation(conversation).build());
      if (upstreams.containsKey(decision.getTarget())) {
        return new Choice(decision.getTarget(), decision.getModel(), decision.getBasis().name());
      }
      System.err.println("no server for target " + decision.getTarget() + ", the strong model answers");
      return new Choice("strong", strongModel, "UNKNOWN_TARGET");
    } catch (StatusRuntimeException e) {
      System.err.println("no decision, the strong model answers: " + e.getStatus().getCode());
      return new Choice("strong", strongModel, "NO_DECISION");
    }
  }

  private static Conversation conversation(JsonArray messages) {
    var conversation = Conversation.newBuilder();
    for (JsonElement element : messages) {
      JsonObject message = element.getAsJsonObject();
      var out = conversation.addMessagesBuilder();
      out.setRole(ROLES.getOrDefault(message.get("role").getAsString(), Role.ROLE_UNSPECIFIED));
      addParts(out, message.get("content"));
    }
    return conversation.build();
  }

  /** The content of an OpenAI message is a string, null, or a list of parts. */
  private static void addParts(ChatMessage.Builder message, JsonElement content) {
    if (content == null || content.isJsonNull()) {
      return;
    }
    if (content.isJsonPrimitive()) {
      message.addParts(ContentPart.newBuilder().setText(content.getAsString()));
      return;
    }
    for (JsonElement element : content.getAsJsonArray()) {
      JsonObject part = element.getAsJsonObject();
      String type = part.get("type").getAsString();
      message.addParts(
          type.equals("text")
              ? ContentPart.newBuilder().setText(part.get("text").getAsString())
              // Only text is scored: say that there was something.
              : ContentPart.newBuilder().setOther(type));
    }
  }

  private HttpRequest forward(HttpExchange exchange, Choice choice, JsonObject body) {
    var request =
        HttpRequest.newBuilder(URI.create(upstreams.get(choice.target()) + "/chat/completions"))
            .header("Content-Type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(body.toString()));
    for (String name : List.of("traceparent", "tracestate", "authorization")) {
      String value = exchange.getRequestHeaders().getFirst(name);
      if (value != null) {
        request.header(name, value);
      }
    }
    return request.build();
  }

  private static JsonObject readBody(HttpExchange exchange) throws IOException {
    byte[] data = exchange.getRequestBody().readNBytes(MAX_BODY + 1);
    if (data.length > MAX_BODY) {
      throw new JsonParseException("too large");
    }
    return JsonParser.parseString(new String(data, StandardCharsets.UTF_8)).getAsJsonObject();
  }

  private static void answer(HttpExchange exchange, int status, String text) throws IOException {
    byte[] data = text.getBytes(StandardCharsets.UTF_8);
    exchange.sendResponseHeaders(status, data.length);
    exchange.getResponseBody().write(data);
  }

  private static String env(String name, String otherwise) {
    String value = System.getenv(name);
    return value == null || value.isEmpty() ? otherwise : value;
  }
}
