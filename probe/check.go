package probe

import (
	"context"
	"fmt"
	"os"
)

// Report is what [VLLM.Check] found; after an error, what was found until then.
type Report struct {
	Extraction
	Artifact       ArtifactReport
	NamedByRequest bool     // the artifact's name holds our request id; if not, the sweep cannot tell that it is ours
	Room           int64    // bytes of artifacts, by estimate, that may be outstanding
	Foreign        int      // artifacts and locks in the folder that no Pointsman asked for
	Warnings       []string // in words for people
}

// Check sends one canary prompt through the path of [VLLM.Extract] and says what it found. ctx bounds what it bounds
// there.
func (v *VLLM) Check(ctx context.Context, prompt string, shape Shape) (Report, error) {
	out, err := v.extract(ctx, Request{Task: prompt, Shape: shape})
	report := Report{
		Extraction:     out.Extraction,
		Artifact:       out.artifact,
		NamedByRequest: out.named,
		Room:           v.room.capacity,
		Warnings:       v.Warnings(),
	}
	warn := func(format string, args ...any) {
		report.Warnings = append(report.Warnings, fmt.Sprintf(format, args...))
	}
	if root, rootErr := v.folder.open(); rootErr == nil {
		defer root.Close()
		listErr := eachName(ctx, root, func(name string) {
			if kindOf(name) == nameForeign {
				report.Foreign++
			}
		})
		if listErr != nil {
			warn("hidden_states_dir cannot be listed (%v): the sweep will not work", bare(listErr))
		}
	}
	for _, w := range v.folder.space(v.room.capacity) {
		warn("%s", w)
	}
	if report.Foreign > 0 {
		warn("hidden_states_dir holds %d artifacts or locks of other clients: vLLM writes one for every request, ours or "+
			"not, and a full folder can stop it", report.Foreign)
	}
	if err == nil && !out.named {
		warn("vLLM did not name the artifact after our X-Request-Id: what a crash leaves behind cannot be told from others' files")
	}
	if err == nil && out.artifact.Left {
		warn("the artifact or its lock could not be removed: this process needs write permission on hidden_states_dir")
	}
	return report, err
}

// Warnings says what is wrong with the folder as it is now: nothing is sent and nothing changed. An artifact holds the
// token ids of its prompt, so whoever can read the folder can read prompts.
func (v *VLLM) Warnings() []string {
	info, err := os.Stat(v.folder.dir)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("hidden_states_dir: %v (vLLM creates it with its first artifact; better create it with mode 0700 or 0770)", bare(err))}
	case !info.IsDir():
		return []string{"hidden_states_dir: is not a directory"}
	}
	var warnings []string
	if perm := info.Mode().Perm(); perm&0o007 != 0 {
		warnings = append(warnings, fmt.Sprintf("hidden_states_dir: mode %#o lets every user in, and artifacts hold prompts as token ids; "+
			"use 0700, or 0770 with a group shared with vLLM", perm))
	}
	return warnings
}
