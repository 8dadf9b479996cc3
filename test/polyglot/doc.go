// Package polyglot proves that Pointsman can be called from Go, Python, TypeScript
// and Java, by people who copy what the README says:
//
//   - the example gateways in go/, python/, typescript/ and java/ are built, run
//     against one server and sent real requests (gateway_test.go);
//   - every command and program of the README's sections for callers is run
//     (readme_test.go), the grpcurl cookbook with the real grpcurl;
//   - the hook in litellm/ runs in the real LiteLLM proxy (litellm_test.go).
//
// All of it needs language toolchains and package registries, so it is skipped
// unless POINTSMAN_E2E is set: make e2e.
package polyglot
