"""The contract pointsman.v1.

decision_pb2 has the messages and enums, decision_pb2_grpc the client
(DecisionServiceStub), error_reason_pb2 the reasons of refused calls.
"""
