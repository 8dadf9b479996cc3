package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCmd struct{}

func (versionCmd) Run(std streams) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	_, err := fmt.Fprintln(std.out, versionLine(version, info))
	return err
}

// versionLine says what this is: the version set by the linker, else the
// module's, and the commit if the build knew it.
func versionLine(linked string, info *debug.BuildInfo) string {
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	commit := cmp.Or(settings["vcs.revision"], "unknown")
	if settings["vcs.modified"] == "true" {
		commit += " (modified)"
	}
	return fmt.Sprintf("pointsman %s, commit %s, %s %s/%s",
		cmp.Or(linked, info.Main.Version, "unknown"), commit,
		cmp.Or(info.GoVersion, runtime.Version()), runtime.GOOS, runtime.GOARCH)
}
