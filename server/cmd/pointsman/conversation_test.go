package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

func TestParseConversation(t *testing.T) {
	other := func(media string) *pointsmanv1.ContentPart {
		return &pointsmanv1.ContentPart{Kind: &pointsmanv1.ContentPart_Other{Other: media}}
	}
	message := func(role pointsmanv1.Role, parts ...*pointsmanv1.ContentPart) *pointsmanv1.ChatMessage {
		return &pointsmanv1.ChatMessage{Role: role, Parts: parts}
	}
	in := `{"model":"m","messages":[
		{"role":"system","content":"be brief"},
		{"role":"developer","content":""},
		{"role":"user","name":"n","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}},{"type":"input_audio"},{"type":"file"},{"type":"text"}]},
		{"role":"assistant","content":null,"tool_calls":[{}]},
		{"role":"tool","content":"42"},
		{"role":"function"}
	]}`
	want := &pointsmanv1.Conversation{Messages: []*pointsmanv1.ChatMessage{
		message(pointsmanv1.Role_ROLE_SYSTEM, textPart("be brief")),
		message(pointsmanv1.Role_ROLE_DEVELOPER, textPart("")),
		message(pointsmanv1.Role_ROLE_USER, textPart("a"), other("image/*"), other("audio/*"), other("application/octet-stream"), other("application/octet-stream")),
		message(pointsmanv1.Role_ROLE_ASSISTANT),
		message(pointsmanv1.Role_ROLE_TOOL, textPart("42")),
		message(pointsmanv1.Role_ROLE_UNSPECIFIED),
	}}
	got, err := parseConversation([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
	list := in[strings.Index(in, "[") : strings.LastIndex(in, "]")+1]
	if got, err = parseConversation([]byte(" \n" + list)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if got, err = parseConversation([]byte("[]")); err != nil || len(got.GetMessages()) != 0 {
		t.Errorf("empty list: %v, %v", got, err)
	}
}

// Errors say where, and show nothing of what stands there.
func TestParseConversationErrors(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"empty", "", "is not a list of chat messages, or an object with one: byte 0: not valid JSON"},
		{"no messages", `{"model":"m"}`, `has no "messages"`},
		{"null messages", `{"messages":null}`, `has no "messages"`},
		{"cut off", `[{"role":"secret`, "is not a list of chat messages, or an object with one: byte 16: not valid JSON"},
		{"a string", `"secret"`, "is not a list of chat messages, or an object with one: byte 8: unexpected string"},
		{"role is a number", `[{"role":12345}]`, "is not a list of chat messages, or an object with one: byte 14: unexpected number"},
		{"content is an object", `[{"role":"user","content":{"secret":1}}]`, "messages[0].content: must be a string or a list of parts"},
		{"a part is a string", `[{},{"content":["secret"]}]`, "messages[1].content: byte 9: unexpected string"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseConversation([]byte(tt.in))
			if err == nil || err.Error() != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}
