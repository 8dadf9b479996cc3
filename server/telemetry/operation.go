package telemetry

import "context"

// Refused counts a call that came without a valid token. There is nothing to tell such
// calls apart by that a stranger did not choose.
func (t *Telemetry) Refused(ctx context.Context) { t.in.refused.Add(ctx, 1) }

// Reloaded counts a reload. err is why it was not taken over.
func (t *Telemetry) Reloaded(ctx context.Context, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "refused"
	}
	t.in.reloads.Add(ctx, 1, newLabels(labelOutcome, outcome).add...)
}
