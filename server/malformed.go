package server

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// errMalformed is the answer to a message that does not decode. Why it does not is
// left out: the decoder's text may quote the message.
var errMalformed = &callError{
	reason:  pointsmanv1.ErrorReason_ERROR_REASON_MESSAGE_MALFORMED,
	message: "the message is not a valid protobuf message of its type",
}

// incoming is a message on its way in, with what became of decoding it.
type incoming struct {
	message any
	err     error
}

// tolerantCodec decodes into an [incoming] without failing. grpc-go answers Internal
// to a message that its codec refuses, as if the server were at fault, and does so
// before any interceptor runs.
type tolerantCodec struct{ encoding.CodecV2 }

func newTolerantCodec() tolerantCodec { return tolerantCodec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal implements [encoding.CodecV2].
func (c tolerantCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if in, ok := v.(*incoming); ok {
		in.err = c.CodecV2.Unmarshal(data, in.message)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// refusingMalformed is the service with methods that answer InvalidArgument to a
// message that does not decode. Such a call passes the interceptors, so that it is
// logged and counted as every other. It needs the [tolerantCodec].
func refusingMalformed(desc grpc.ServiceDesc) *grpc.ServiceDesc {
	desc.Methods = slices.Clone(desc.Methods)
	for i := range desc.Methods {
		handle := desc.Methods[i].Handler
		desc.Methods[i].Handler = func(srv any, ctx context.Context, receive func(any) error, around grpc.UnaryServerInterceptor) (any, error) {
			var in incoming
			refuse := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				return around(ctx, req, info, func(ctx context.Context, req any) (any, error) {
					if in.err != nil {
						return nil, errMalformed
					}
					return handler(ctx, req)
				})
			}
			return handle(srv, ctx, func(message any) error {
				in.message = message
				return receive(&in)
			}, refuse)
		}
	}
	return &desc
}
