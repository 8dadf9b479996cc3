package vllmsim

import "testing"

func TestAllFaultsListsEveryKind(t *testing.T) {
	listed := map[kind]bool{none: true}
	for _, c := range AllFaults(t.TempDir()) {
		listed[c.Fault.kind] = true
	}
	for k, name := range names {
		if name == "" {
			t.Errorf("fault %d has no name", k)
		}
		if !listed[kind(k)] {
			t.Errorf("%s is not listed", name)
		}
	}
	if last := otherTokens; int(last) != len(names)-1 {
		t.Errorf("%d names for %d faults", len(names), last+1)
	}
}
