package server

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// errorDomain is the domain of every ErrorInfo.
const errorDomain = "pointsman.dev"

// codeTable says which gRPC code an error's reason has. It is the only place
// where Pointsman chooses a code.
var codeTable = map[pointsmanv1.ErrorReason]codes.Code{
	pointsmanv1.ErrorReason_ERROR_REASON_INPUT_MISSING:            codes.InvalidArgument,
	pointsmanv1.ErrorReason_ERROR_REASON_TRADE_OFF_OUT_OF_RANGE:   codes.InvalidArgument,
	pointsmanv1.ErrorReason_ERROR_REASON_ENUM_UNKNOWN:             codes.InvalidArgument,
	pointsmanv1.ErrorReason_ERROR_REASON_TARGET_UNKNOWN:           codes.InvalidArgument,
	pointsmanv1.ErrorReason_ERROR_REASON_CACHE_NAMESPACE_TOO_LONG: codes.InvalidArgument,
	pointsmanv1.ErrorReason_ERROR_REASON_MAX_AGE_INVALID:          codes.InvalidArgument,
	pointsmanv1.ErrorReason_ERROR_REASON_MESSAGE_MALFORMED:        codes.InvalidArgument,
	pointsmanv1.ErrorReason_ERROR_REASON_ROUTE_NOT_FOUND:          codes.NotFound,
	pointsmanv1.ErrorReason_ERROR_REASON_UNAUTHENTICATED:          codes.Unauthenticated,
	pointsmanv1.ErrorReason_ERROR_REASON_OVERRIDE_FORBIDDEN:       codes.PermissionDenied,
	pointsmanv1.ErrorReason_ERROR_REASON_NOT_READY:                codes.Unavailable,
	pointsmanv1.ErrorReason_ERROR_REASON_FALLBACK_REFUSED:         codes.Unavailable,
	pointsmanv1.ErrorReason_ERROR_REASON_INTERNAL:                 codes.Internal,
}

// callError is a call that is refused.
type callError struct {
	reason pointsmanv1.ErrorReason
	// field is the request's field at fault, if one is.
	field string
	// message is for the caller; it never holds text of a task.
	message string
	// metadata goes into the ErrorInfo.
	metadata map[string]string
}

// Error implements error.
func (e *callError) Error() string {
	if e.field == "" {
		return e.message
	}
	return e.field + ": " + e.message
}

// GRPCStatus gives the error its gRPC status, with details.
func (e *callError) GRPCStatus() *status.Status {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{
		Reason:   reasonName(e.reason),
		Domain:   errorDomain,
		Metadata: e.metadata,
	}}
	if e.field != "" {
		details = append(details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{
			Field: e.field, Description: e.message, Reason: reasonName(e.reason),
		}}})
	}
	bare := status.New(codeTable[e.reason], e.Error())
	detailed, err := bare.WithDetails(details...)
	if err != nil { // only for a status that is OK
		return bare
	}
	return detailed
}

// reasonName is the reason as it stands in an ErrorInfo.
func reasonName(r pointsmanv1.ErrorReason) string {
	return strings.TrimPrefix(r.String(), "ERROR_REASON_")
}

// asCallError makes any error of a call one that can be answered. What it does
// not know is a defect, of which nothing is told.
func asCallError(err error) error {
	var (
		refused   *callError
		forbidden *OverrideError
	)
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &forbidden):
		return &callError{
			reason: pointsmanv1.ErrorReason_ERROR_REASON_OVERRIDE_FORBIDDEN, field: forbidden.Field, message: err.Error(),
		}
	case errors.Is(err, ErrRouteNotFound):
		return &callError{
			reason: pointsmanv1.ErrorReason_ERROR_REASON_ROUTE_NOT_FOUND, field: "route",
			message: err.Error() + "; ListRoutes names them",
		}
	case errors.Is(err, ErrTargetUnknown):
		return &callError{
			reason: pointsmanv1.ErrorReason_ERROR_REASON_TARGET_UNKNOWN, field: "allowed_targets",
			message: err.Error() + "; ListRoutes names them",
		}
	case errors.Is(err, context.Canceled):
		return status.FromContextError(context.Canceled).Err()
	default:
		return &callError{
			reason:  pointsmanv1.ErrorReason_ERROR_REASON_INTERNAL,
			message: "internal error; the server's log has it under this call's x-request-id",
		}
	}
}
