package server

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

const (
	oldToken = "old-0123456789abcdef"
	newToken = "new-0123456789abcdef"
)

func TestParseTokens(t *testing.T) {
	tests := []struct {
		name, in string
		want     []caller
		err      string
	}{
		{
			"rotation", "# both until Friday\ngateway " + oldToken + "\n\ngateway\t" + newToken + "  refresh,trade_off\r\n",
			[]caller{{"gateway", 0}, {"gateway", mayRefresh | mayTradeOff}},
			"",
		},
		{"all", "ops " + oldToken + " all", []caller{{"ops", mayAll}}, ""},
		{"empty", "# nobody\n", nil, "holds no token"},
		{"no token", "gateway\n", nil, "line 1 is not NAME TOKEN"},
		{"spaces in permissions", "a " + oldToken + " refresh, bypass", nil, "line 1 is not NAME TOKEN"},
		{"short", "\na hunter2hunter2", nil, "line 2 has a token shorter than 16 bytes"},
		{"unknown permission", "a " + oldToken + " sudo", nil, "line 1 has an unknown permission"},
		{"one token twice", "a " + oldToken + "\nb " + oldToken, nil, "line 2 has the token of line 1"},
		{"odd name", "a/b " + oldToken, nil, "line 1 has a name"},
		{"every mistake", "a\nb " + oldToken + " x\n", nil, "line 2 has an unknown"},
		{"too large", strings.Repeat("#", maxTokensBytes+1), nil, "is larger"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseTokens([]byte(tt.in))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, want %q", err, tt.err)
				}
				if text := err.Error(); strings.Contains(text, oldToken) || strings.Contains(text, "hunter2") {
					t.Errorf("the error shows a token: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(tt.want) {
				t.Fatalf("%d tokens, want %d", len(got), len(tt.want))
			}
			for i := range got {
				if got[i].caller != tt.want[i] {
					t.Errorf("line %d: %+v, want %+v", i, got[i].caller, tt.want[i])
				}
			}
		})
	}
}

func FuzzParseTokens(f *testing.F) {
	f.Add([]byte("a " + oldToken + " all\n#\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := parseTokens(data)
		if (err == nil) != (len(found) > 0) {
			t.Errorf("%d tokens and %v", len(found), err)
		}
	})
}

type countingDoor struct{ refused int }

func (c *countingDoor) Refused(context.Context) { c.refused++ }

func TestDoorman(t *testing.T) {
	const decide, health = "/pointsman.v1.DecisionService/Decide", "/grpc.health.v1.Health/Check"
	accepted, err := parseTokens([]byte("a " + oldToken + " refresh\nb " + newToken + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, method string
		header       metadata.MD
		openHealth   bool
		want         caller
		refused      bool
	}{
		{name: "first", method: decide, header: metadata.Pairs("authorization", "Bearer "+oldToken), want: caller{"a", mayRefresh}},
		{name: "second", method: decide, header: metadata.Pairs("authorization", "bearer  "+newToken), want: caller{"b", 0}},
		{name: "none", method: decide, refused: true},
		{name: "wrong", method: decide, header: metadata.Pairs("authorization", "Bearer "+oldToken+"x"), refused: true},
		{name: "part", method: decide, header: metadata.Pairs("authorization", "Bearer "+oldToken[:18]), refused: true},
		{name: "empty", method: decide, header: metadata.Pairs("authorization", "Bearer "), refused: true},
		{name: "other scheme", method: decide, header: metadata.Pairs("authorization", "Basic "+oldToken), refused: true},
		{name: "two", method: decide, header: metadata.Pairs("authorization", "Bearer "+oldToken, "authorization", "Bearer "+oldToken), refused: true},
		{name: "health", method: health, refused: true},
		{name: "open health", method: health, openHealth: true},
		{name: "open health is no watching", method: "/grpc.health.v1.Health/Watch", openHealth: true, refused: true},
		{name: "open health is health alone", method: decide + "/grpc.health.v1.Health/", openHealth: true, refused: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			seen := &countingDoor{}
			d := newDoorman(seen)
			d.use(entrance{tokens: &accepted, openHealth: tt.openHealth})
			ctx, err := d.enter(t.Context(), &tap.Info{FullMethodName: tt.method, Header: tt.header})
			if tt.refused {
				if status.Code(err) != codes.Unauthenticated || seen.refused != 1 {
					t.Errorf("%v, counted %d", err, seen.refused)
				}
				return
			}
			if err != nil || callerOf(ctx) != tt.want {
				t.Errorf("%+v %v, want %+v", callerOf(ctx), err, tt.want)
			}
		})
	}
}

func TestDoormanWithoutTokensLetsEverybodyDoEverything(t *testing.T) {
	d := newDoorman(&countingDoor{})
	d.use(entrance{})
	ctx, err := d.enter(t.Context(), &tap.Info{FullMethodName: "/x"})
	if err != nil || callerOf(ctx) != (caller{may: mayAll}) {
		t.Errorf("%+v %v", callerOf(ctx), err)
	}
}
