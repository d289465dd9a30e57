package user

import (
	"os"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/cmd/genv/shell/docker"
)

func (p *program) dockerCommand() *cli.Command {
	return &cli.Command{
		Name:            "docker",
		Usage:           "run docker; a container that it starts gets GPUs and an environment of its own",
		ArgsUsage:       "run|create [--gpus N] [--gpu-memory SIZE] [--over-subscribe] [--mount-shims] [--mount-locks] [OPTION…] IMAGE [COMMAND…]",
		SkipFlagParsing: true, // all that follows is docker's
		Action:          p.docker,
	}
}

// docker becomes docker. A container that it starts has an environment of its own.
func (p *program) docker(c *cli.Context) error {
	words := c.Args().Slice()
	if len(words) == 0 || words[0] == "--help" || words[0] == "-h" {
		return cli.ShowSubcommandHelp(c)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	path, err := shell.FindReal("docker", p.Getenv("PATH"), self)
	if err != nil {
		return notStarted(&p.Program, "docker", err)
	}
	who := p.person()
	over := p.Getenv("GENV_ALLOW_OVER_SUBSCRIPTION")
	err = docker.Shim{Real: path, Args: words, Environ: os.Environ(), Stderr: p.Err, Exec: syscall.Exec}.
		RunOwn(over != "" && over != "0", func() string { return who.containerToken(c.Context, "") })
	return &command.ExitError{Code: docker.FailedStatus, Err: err}
}
