//go:build !race

package server

import (
	"testing"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

func TestACachedDecideAllocatesLittle(t *testing.T) {
	call := callThrough(cachedDecider(t, 1))
	const runs = 200
	got := testing.AllocsPerRun(runs, func() {
		if resp, err := call(cachedTask); err != nil || resp.GetOrigin() != pointsmanv1.Origin_ORIGIN_LOCAL_CACHE {
			t.Fatal(resp, err)
		}
	})
	t.Logf("%v allocations", got)
	if got > mostAllocs+callersAllocs {
		t.Errorf("%v allocations, want at most %d", got, mostAllocs+callersAllocs)
	}
}
