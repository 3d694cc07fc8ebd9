package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"

	"toolledger/internal/stack"
)

// versionInfo is what version prints.
type versionInfo struct {
	Version  string `json:"version"` // "(devel)" for a build from a work tree
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the revision
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Dynoxide string `json:"dynoxide"` // the local stack's pinned version
	Platform string `json:"platform"`
}

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "version", GroupID: groupDeploy, Args: noArgs,
		Short: "Say which build this is",
		RunE: func(*cobra.Command, []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				info = &debug.BuildInfo{}
			}
			v := versionOf(info)
			if a.json {
				return a.printJSON(v)
			}
			a.print("toolledger %s", v.Version)
			if v.Revision != "" {
				a.print(" (%s, %s)", v.Revision, v.Time)
			}
			if v.Modified {
				a.print(" with local changes")
			}
			a.print("\n%s, %s, dynoxide %s\n", v.Go, v.Platform, v.Dynoxide)
			return nil
		},
	}
}

func versionOf(info *debug.BuildInfo) versionInfo {
	v := versionInfo{Version: info.Main.Version, Go: info.GoVersion, Dynoxide: stack.Version, Platform: stack.Platform()}
	if v.Version == "" {
		v.Version = "(devel)"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
