package app

import (
	"fmt"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/agent"
)

// VersionDocument is the JSON of `genv version`; docs/json.md describes it.
type VersionDocument struct {
	Schema   string `json:"schema"`
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func versionCommand(p command.Program) *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version",
		Flags: []cli.Flag{command.FormatFlag("tui", "json")},
		Action: func(c *cli.Context) error {
			format, err := command.FormatOf(c, "tui", "json")
			switch {
			case err != nil:
				return err
			case format == "json":
				return render.WriteJSON(p.Out, VersionDocument{
					Schema: "genv.version/1", Version: p.Version, Protocol: agent.Version,
					Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
				})
			}
			_, err = fmt.Fprintln(p.Out, p.Version)
			return err
		},
	}
}
