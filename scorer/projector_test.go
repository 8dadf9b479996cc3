package scorer

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

const (
	sharedRows    = 40
	sharedColumns = sharedBytes / bytesPerFloat / sharedRows * 2
)

// newJobs returns a projector whose matrix is large enough to be shared, n vectors, and what is to come of them.
func newJobs(n int) (p *projector, jobs []*projection, want [][]float32) {
	shared := newProjector(randomValues(sharedRows*sharedColumns, 1), sharedColumns)
	for i := range n {
		j := newProjection(sharedColumns, sharedRows)
		copy(j.x, widen(randomValues(sharedColumns, uint64(i)+2)))
		y := make([]float32, sharedRows)
		matVec(y, shared.pass.m, j.x)
		jobs, want = append(jobs, &j), append(want, y)
	}
	return &shared, jobs, want
}

func TestProjectorIsSafeForConcurrentUse(t *testing.T) {
	p, jobs, want := newJobs(3*maxBatch + 1)
	var callers sync.WaitGroup
	for i, j := range jobs {
		callers.Go(func() {
			for range 10 {
				clear(j.y)
				p.project(j)
				if !slices.Equal(j.y, want[i]) {
					t.Errorf("vector %d beside others differs from the same alone", i)
					return
				}
			}
		})
	}
	callers.Wait()
	if p.running || len(p.queue) > 0 {
		t.Errorf("running %v, %d queued after the last one", p.running, len(p.queue))
	}
}

// TestProjectorSharesPasses: those that come during a pass wait for it, then share the next ones, in order.
func TestProjectorSharesPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, jobs, want := newJobs(maxBatch + 2)
		p.running = true // as if a pass ran
		finished := make([]bool, len(jobs))
		for i, j := range jobs {
			go func() {
				p.project(j)
				finished[i] = true
			}()
			synctest.Wait()
		}
		if slices.Contains(finished, true) || len(p.queue) != len(jobs) {
			t.Fatalf("during a pass, finished %v, %d queued, want all queued", finished, len(p.queue))
		}
		batch := p.take()
		if !slices.Equal(batch, jobs[:maxBatch]) {
			t.Errorf("the next pass is not for the first %d of the queue", maxBatch)
		}
		p.run(batch) // its leader would; it leaves one more to lead the rest
		jobs[0].wake <- resultReady
		synctest.Wait()
		if slices.Contains(finished, false) || p.running || len(p.queue) > 0 {
			t.Errorf("finished %v, running %v, %d queued", finished, p.running, len(p.queue))
		}
		for i, j := range jobs {
			if !slices.Equal(j.y, want[i]) {
				t.Errorf("vector %d differs from the same alone", i)
			}
		}
	})
}

// TestProjectorWakesItsBatch: at the end of a pass its batch is told that the results are there, and the first in the
// queue that it leads.
func TestProjectorWakesItsBatch(t *testing.T) {
	p, jobs, want := newJobs(5)
	p.running, p.queue = true, slices.Clone(jobs[3:])
	p.run(jobs[:3])
	for i, j := range jobs {
		var woken []verdict
		for len(j.wake) > 0 {
			woken = append(woken, <-j.wake)
		}
		if expected := [][]verdict{nil, {resultReady}, {resultReady}, {leadNext}, nil}[i]; !slices.Equal(woken, expected) {
			t.Errorf("vector %d was woken with %v, want %v", i, woken, expected)
		}
		if i < 3 && !slices.Equal(j.y, want[i]) {
			t.Errorf("vector %d differs from the same alone", i)
		}
	}
	if !p.running {
		t.Error("nobody leads the rest")
	}
}

// TestProjectorSurvivesAPanic: when a leader breaks down, its batch multiplies without it and the queue goes on.
func TestProjectorSurvivesAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, jobs, want := newJobs(maxBatch + 4)
		p.running = true
		var callers sync.WaitGroup
		for _, j := range jobs[1:] {
			callers.Go(func() { p.project(j) })
			synctest.Wait()
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("one vector too many in a batch did not panic")
				}
			}()
			p.run(append([]*projection{jobs[0]}, p.take()...))
		}()
		callers.Wait()
		for i, j := range jobs[1:] {
			if !slices.Equal(j.y, want[i+1]) {
				t.Errorf("vector %d differs from the same alone", i+1)
			}
		}
		if p.running || len(p.queue) > 0 {
			t.Errorf("running %v, %d queued", p.running, len(p.queue))
		}
	})
}
