package dev.pointsman.v1;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 * <pre>
 * DecisionService chooses a target for a task.
 * A failing probe, scorer or cache is never a gRPC error: the answer is OK, on
 * the route's fallback target, with the reason in fallback_reason. gRPC errors
 * are for integration mistakes and for a server that is not ready. Each that
 * Pointsman makes carries a google.rpc.ErrorInfo whose domain is "pointsman.dev" and whose reason is a
 * value of ErrorReason without its prefix.
 * Trailers of every answered Decide, for meshes and logs: pointsman-basis,
 * pointsman-fallback-reason (only when there is one), pointsman-decision-id and
 * x-request-id.
 * </pre>
 */
@io.grpc.stub.annotations.GrpcGenerated
public final class DecisionServiceGrpc {

  private DecisionServiceGrpc() {}

  public static final java.lang.String SERVICE_NAME = "pointsman.v1.DecisionService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<dev.pointsman.v1.DecideRequest,
      dev.pointsman.v1.DecideResponse> getDecideMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "Decide",
      requestType = dev.pointsman.v1.DecideRequest.class,
      responseType = dev.pointsman.v1.DecideResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.pointsman.v1.DecideRequest,
      dev.pointsman.v1.DecideResponse> getDecideMethod() {
    io.grpc.MethodDescriptor<dev.pointsman.v1.DecideRequest, dev.pointsman.v1.DecideResponse> getDecideMethod;
    if ((getDecideMethod = DecisionServiceGrpc.getDecideMethod) == null) {
      synchronized (DecisionServiceGrpc.class) {
        if ((getDecideMethod = DecisionServiceGrpc.getDecideMethod) == null) {
          DecisionServiceGrpc.getDecideMethod = getDecideMethod =
              io.grpc.MethodDescriptor.<dev.pointsman.v1.DecideRequest, dev.pointsman.v1.DecideResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "Decide"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.pointsman.v1.DecideRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.pointsman.v1.DecideResponse.getDefaultInstance()))
              .setSchemaDescriptor(new DecisionServiceMethodDescriptorSupplier("Decide"))
              .build();
        }
      }
    }
    return getDecideMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.pointsman.v1.ListRoutesRequest,
      dev.pointsman.v1.ListRoutesResponse> getListRoutesMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListRoutes",
      requestType = dev.pointsman.v1.ListRoutesRequest.class,
      responseType = dev.pointsman.v1.ListRoutesResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.pointsman.v1.ListRoutesRequest,
      dev.pointsman.v1.ListRoutesResponse> getListRoutesMethod() {
    io.grpc.MethodDescriptor<dev.pointsman.v1.ListRoutesRequest, dev.pointsman.v1.ListRoutesResponse> getListRoutesMethod;
    if ((getListRoutesMethod = DecisionServiceGrpc.getListRoutesMethod) == null) {
      synchronized (DecisionServiceGrpc.class) {
        if ((getListRoutesMethod = DecisionServiceGrpc.getListRoutesMethod) == null) {
          DecisionServiceGrpc.getListRoutesMethod = getListRoutesMethod =
              io.grpc.MethodDescriptor.<dev.pointsman.v1.ListRoutesRequest, dev.pointsman.v1.ListRoutesResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListRoutes"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.pointsman.v1.ListRoutesRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.pointsman.v1.ListRoutesResponse.getDefaultInstance()))
              .setSchemaDescriptor(new DecisionServiceMethodDescriptorSupplier("ListRoutes"))
              .build();
        }
      }
    }
    return getListRoutesMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static DecisionServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<DecisionServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<DecisionServiceStub>() {
        @java.lang.Override
        public DecisionServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new DecisionServiceStub(channel, callOptions);
        }
      };
    return DecisionServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports all types of calls on the service
   */
  public static DecisionServiceBlockingV2Stub newBlockingV2Stub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<DecisionServiceBlockingV2Stub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<DecisionServiceBlockingV2Stub>() {
        @java.lang.Override
        public DecisionServiceBlockingV2Stub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new DecisionServiceBlockingV2Stub(channel, callOptions);
        }
      };
    return DecisionServiceBlockingV2Stub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static DecisionServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<DecisionServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<DecisionServiceBlockingStub>() {
        @java.lang.Override
        public DecisionServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new DecisionServiceBlockingStub(channel, callOptions);
        }
      };
    return DecisionServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static DecisionServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<DecisionServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<DecisionServiceFutureStub>() {
        @java.lang.Override
        public DecisionServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new DecisionServiceFutureStub(channel, callOptions);
        }
      };
    return DecisionServiceFutureStub.newStub(factory, channel);
  }

  /**
   * <pre>
   * DecisionService chooses a target for a task.
   * A failing probe, scorer or cache is never a gRPC error: the answer is OK, on
   * the route's fallback target, with the reason in fallback_reason. gRPC errors
   * are for integration mistakes and for a server that is not ready. Each that
   * Pointsman makes carries a google.rpc.ErrorInfo whose domain is "pointsman.dev" and whose reason is a
   * value of ErrorReason without its prefix.
   * Trailers of every answered Decide, for meshes and logs: pointsman-basis,
   * pointsman-fallback-reason (only when there is one), pointsman-decision-id and
   * x-request-id.
   * </pre>
   */
  public interface AsyncService {

    /**
     * <pre>
     * Decide chooses a target for one task. The answer leaves before the caller's
     * deadline; what it could not wait for goes on and serves the next caller.
     * </pre>
     */
    default void decide(dev.pointsman.v1.DecideRequest request,
        io.grpc.stub.StreamObserver<dev.pointsman.v1.DecideResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDecideMethod(), responseObserver);
    }

    /**
     * <pre>
     * ListRoutes says which routes there are, what they choose between and with
     * which checkpoint.
     * </pre>
     */
    default void listRoutes(dev.pointsman.v1.ListRoutesRequest request,
        io.grpc.stub.StreamObserver<dev.pointsman.v1.ListRoutesResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListRoutesMethod(), responseObserver);
    }
  }

  /**
   * Base class for the server implementation of the service DecisionService.
   * <pre>
   * DecisionService chooses a target for a task.
   * A failing probe, scorer or cache is never a gRPC error: the answer is OK, on
   * the route's fallback target, with the reason in fallback_reason. gRPC errors
   * are for integration mistakes and for a server that is not ready. Each that
   * Pointsman makes carries a google.rpc.ErrorInfo whose domain is "pointsman.dev" and whose reason is a
   * value of ErrorReason without its prefix.
   * Trailers of every answered Decide, for meshes and logs: pointsman-basis,
   * pointsman-fallback-reason (only when there is one), pointsman-decision-id and
   * x-request-id.
   * </pre>
   */
  public static abstract class DecisionServiceImplBase
      implements io.grpc.BindableService, AsyncService {

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return DecisionServiceGrpc.bindService(this);
    }
  }

  /**
   * A stub to allow clients to do asynchronous rpc calls to service DecisionService.
   * <pre>
   * DecisionService chooses a target for a task.
   * A failing probe, scorer or cache is never a gRPC error: the answer is OK, on
   * the route's fallback target, with the reason in fallback_reason. gRPC errors
   * are for integration mistakes and for a server that is not ready. Each that
   * Pointsman makes carries a google.rpc.ErrorInfo whose domain is "pointsman.dev" and whose reason is a
   * value of ErrorReason without its prefix.
   * Trailers of every answered Decide, for meshes and logs: pointsman-basis,
   * pointsman-fallback-reason (only when there is one), pointsman-decision-id and
   * x-request-id.
   * </pre>
   */
  public static final class DecisionServiceStub
      extends io.grpc.stub.AbstractAsyncStub<DecisionServiceStub> {
    private DecisionServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected DecisionServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new DecisionServiceStub(channel, callOptions);
    }

    /**
     * <pre>
     * Decide chooses a target for one task. The answer leaves before the caller's
     * deadline; what it could not wait for goes on and serves the next caller.
     * </pre>
     */
    public void decide(dev.pointsman.v1.DecideRequest request,
        io.grpc.stub.StreamObserver<dev.pointsman.v1.DecideResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDecideMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * ListRoutes says which routes there are, what they choose between and with
     * which checkpoint.
     * </pre>
     */
    public void listRoutes(dev.pointsman.v1.ListRoutesRequest request,
        io.grpc.stub.StreamObserver<dev.pointsman.v1.ListRoutesResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListRoutesMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * A stub to allow clients to do synchronous rpc calls to service DecisionService.
   * <pre>
   * DecisionService chooses a target for a task.
   * A failing probe, scorer or cache is never a gRPC error: the answer is OK, on
   * the route's fallback target, with the reason in fallback_reason. gRPC errors
   * are for integration mistakes and for a server that is not ready. Each that
   * Pointsman makes carries a google.rpc.ErrorInfo whose domain is "pointsman.dev" and whose reason is a
   * value of ErrorReason without its prefix.
   * Trailers of every answered Decide, for meshes and logs: pointsman-basis,
   * pointsman-fallback-reason (only when there is one), pointsman-decision-id and
   * x-request-id.
   * </pre>
   */
  public static final class DecisionServiceBlockingV2Stub
      extends io.grpc.stub.AbstractBlockingStub<DecisionServiceBlockingV2Stub> {
    private DecisionServiceBlockingV2Stub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected DecisionServiceBlockingV2Stub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new DecisionServiceBlockingV2Stub(channel, callOptions);
    }

    /**
     * <pre>
     * Decide chooses a target for one task. The answer leaves before the caller's
     * deadline; what it could not wait for goes on and serves the next caller.
     * </pre>
     */
    public dev.pointsman.v1.DecideResponse decide(dev.pointsman.v1.DecideRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getDecideMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * ListRoutes says which routes there are, what they choose between and with
     * which checkpoint.
     * </pre>
     */
    public dev.pointsman.v1.ListRoutesResponse listRoutes(dev.pointsman.v1.ListRoutesRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getListRoutesMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do limited synchronous rpc calls to service DecisionService.
   * <pre>
   * DecisionService chooses a target for a task.
   * A failing probe, scorer or cache is never a gRPC error: the answer is OK, on
   * the route's fallback target, with the reason in fallback_reason. gRPC errors
   * are for integration mistakes and for a server that is not ready. Each that
   * Pointsman makes carries a google.rpc.ErrorInfo whose domain is "pointsman.dev" and whose reason is a
   * value of ErrorReason without its prefix.
   * Trailers of every answered Decide, for meshes and logs: pointsman-basis,
   * pointsman-fallback-reason (only when there is one), pointsman-decision-id and
   * x-request-id.
   * </pre>
   */
  public static final class DecisionServiceBlockingStub
      extends io.grpc.stub.AbstractBlockingStub<DecisionServiceBlockingStub> {
    private DecisionServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected DecisionServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new DecisionServiceBlockingStub(channel, callOptions);
    }

    /**
     * <pre>
     * Decide chooses a target for one task. The answer leaves before the caller's
     * deadline; what it could not wait for goes on and serves the next caller.
     * </pre>
     */
    public dev.pointsman.v1.DecideResponse decide(dev.pointsman.v1.DecideRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDecideMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * ListRoutes says which routes there are, what they choose between and with
     * which checkpoint.
     * </pre>
     */
    public dev.pointsman.v1.ListRoutesResponse listRoutes(dev.pointsman.v1.ListRoutesRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListRoutesMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do ListenableFuture-style rpc calls to service DecisionService.
   * <pre>
   * DecisionService chooses a target for a task.
   * A failing probe, scorer or cache is never a gRPC error: the answer is OK, on
   * the route's fallback target, with the reason in fallback_reason. gRPC errors
   * are for integration mistakes and for a server that is not ready. Each that
   * Pointsman makes carries a google.rpc.ErrorInfo whose domain is "pointsman.dev" and whose reason is a
   * value of ErrorReason without its prefix.
   * Trailers of every answered Decide, for meshes and logs: pointsman-basis,
   * pointsman-fallback-reason (only when there is one), pointsman-decision-id and
   * x-request-id.
   * </pre>
   */
  public static final class DecisionServiceFutureStub
      extends io.grpc.stub.AbstractFutureStub<DecisionServiceFutureStub> {
    private DecisionServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected DecisionServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new DecisionServiceFutureStub(channel, callOptions);
    }

    /**
     * <pre>
     * Decide chooses a target for one task. The answer leaves before the caller's
     * deadline; what it could not wait for goes on and serves the next caller.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.pointsman.v1.DecideResponse> decide(
        dev.pointsman.v1.DecideRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDecideMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * ListRoutes says which routes there are, what they choose between and with
     * which checkpoint.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.pointsman.v1.ListRoutesResponse> listRoutes(
        dev.pointsman.v1.ListRoutesRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListRoutesMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_DECIDE = 0;
  private static final int METHODID_LIST_ROUTES = 1;

  private static final class MethodHandlers<Req, Resp> implements
      io.grpc.stub.ServerCalls.UnaryMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.ServerStreamingMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.ClientStreamingMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.BidiStreamingMethod<Req, Resp> {
    private final AsyncService serviceImpl;
    private final int methodId;

    MethodHandlers(AsyncService serviceImpl, int methodId) {
      this.serviceImpl = serviceImpl;
      this.methodId = methodId;
    }

    @java.lang.Override
    @java.lang.SuppressWarnings("unchecked")
    public void invoke(Req request, io.grpc.stub.StreamObserver<Resp> responseObserver) {
      switch (methodId) {
        case METHODID_DECIDE:
          serviceImpl.decide((dev.pointsman.v1.DecideRequest) request,
              (io.grpc.stub.StreamObserver<dev.pointsman.v1.DecideResponse>) responseObserver);
          break;
        case METHODID_LIST_ROUTES:
          serviceImpl.listRoutes((dev.pointsman.v1.ListRoutesRequest) request,
              (io.grpc.stub.StreamObserver<dev.pointsman.v1.ListRoutesResponse>) responseObserver);
          break;
        default:
          throw new AssertionError();
      }
    }

    @java.lang.Override
    @java.lang.SuppressWarnings("unchecked")
    public io.grpc.stub.StreamObserver<Req> invoke(
        io.grpc.stub.StreamObserver<Resp> responseObserver) {
      switch (methodId) {
        default:
          throw new AssertionError();
      }
    }
  }

  public static final io.grpc.ServerServiceDefinition bindService(AsyncService service) {
    return io.grpc.ServerServiceDefinition.builder(getServiceDescriptor())
        .addMethod(
          getDecideMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.pointsman.v1.DecideRequest,
              dev.pointsman.v1.DecideResponse>(
                service, METHODID_DECIDE)))
        .addMethod(
          getListRoutesMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.pointsman.v1.ListRoutesRequest,
              dev.pointsman.v1.ListRoutesResponse>(
                service, METHODID_LIST_ROUTES)))
        .build();
  }

  private static abstract class DecisionServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoFileDescriptorSupplier, io.grpc.protobuf.ProtoServiceDescriptorSupplier {
    DecisionServiceBaseDescriptorSupplier() {}

    @java.lang.Override
    public com.google.protobuf.Descriptors.FileDescriptor getFileDescriptor() {
      return dev.pointsman.v1.Decision.getDescriptor();
    }

    @java.lang.Override
    public com.google.protobuf.Descriptors.ServiceDescriptor getServiceDescriptor() {
      return getFileDescriptor().findServiceByName("DecisionService");
    }
  }

  private static final class DecisionServiceFileDescriptorSupplier
      extends DecisionServiceBaseDescriptorSupplier {
    DecisionServiceFileDescriptorSupplier() {}
  }

  private static final class DecisionServiceMethodDescriptorSupplier
      extends DecisionServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoMethodDescriptorSupplier {
    private final java.lang.String methodName;

    DecisionServiceMethodDescriptorSupplier(java.lang.String methodName) {
      this.methodName = methodName;
    }

    @java.lang.Override
    public com.google.protobuf.Descriptors.MethodDescriptor getMethodDescriptor() {
      return getServiceDescriptor().findMethodByName(methodName);
    }
  }

  private static volatile io.grpc.ServiceDescriptor serviceDescriptor;

  public static io.grpc.ServiceDescriptor getServiceDescriptor() {
    io.grpc.ServiceDescriptor result = serviceDescriptor;
    if (result == null) {
      synchronized (DecisionServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .setSchemaDescriptor(new DecisionServiceFileDescriptorSupplier())
              .addMethod(getDecideMethod())
              .addMethod(getListRoutesMethod())
              .build();
        }
      }
    }
    return result;
  }
}
