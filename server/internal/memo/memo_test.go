package memo_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pointsman-dev/pointsman/server/internal/memo"
)

func TestMemoMakesEachValueOnce(t *testing.T) {
	var (
		m    memo.Memo[int, int]
		made atomic.Int64
		wg   sync.WaitGroup
	)
	const keys, callers = 10, 8
	for range callers {
		wg.Go(func() {
			for key := range keys {
				got := m.Get(key, func(k int) int { made.Add(1); return k * k })
				if got != key*key {
					t.Errorf("%d gives %d", key, got)
				}
			}
		})
	}
	wg.Wait()
	if made.Load() != keys || len(m.All()) != keys {
		t.Errorf("made %d values of %d keys, remembers %d", made.Load(), keys, len(m.All()))
	}
}

func TestAMemoThatIsEmpty(t *testing.T) {
	var m memo.Memo[string, int]
	if len(m.All()) != 0 {
		t.Error("it remembers something")
	}
}
