package train

import "time"

// Stage is a part of the work whose progress is told.
type Stage string

// The stages, in the order in which they come.
const (
	StageRead       Stage = "reading features"
	StageComponents Stage = "principal components"
	StageValidate   Stage = "cross-validation"
	StageMembers    Stage = "training members"
)

// Progress is told how far a stage is: done of total steps, and a few words on
// the newest. It is called from one goroutine at a time and must not block.
type Progress func(stage Stage, done, total int, note string)

func (p Progress) tell(stage Stage, done, total int, note string) {
	if p != nil {
		p(stage, done, total, note)
	}
}

// Clock tells the time for the record; nil is the system's.
type Clock func() time.Time

func (c Clock) now() time.Time {
	if c == nil {
		return time.Now()
	}
	return c()
}
