package telemetry

import (
	"strings"
	"testing"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// TestEveryEnumValueHasAShortName keeps the prefixes in step with the contract.
func TestEveryEnumValueHasAShortName(t *testing.T) {
	enums := pointsmanv1.File_pointsman_v1_decision_proto.Enums()
	for i := range enums.Len() {
		e := enums.Get(i)
		prefix, ok := enumPrefixes[e.Name()]
		if !ok {
			continue // never written by its short name
		}
		for j := range e.Values().Len() {
			if name := string(e.Values().Get(j).Name()); !strings.HasPrefix(name, prefix) {
				t.Errorf("%s does not begin with %s", name, prefix)
			}
		}
	}
}
