package fleet

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
)

// listing is what the flags of the commands that print tables say.
type listing struct {
	Config
	output    render.Output
	noSummary bool
}

// alsoFailed is the end of the summary; with -q the summary is that of 1.4.3.
func (l *listing) alsoFailed(hosts int) string {
	if l.Quiet {
		return ""
	}
	return render.AlsoFailed(hosts)
}

func listFlags() []cli.Flag {
	return append(command.OutputFlags(), &cli.BoolFlag{Name: "no-summary", Category: command.Output, Usage: "leave out the summary"})
}

func (p *program) readListing(c *cli.Context) (listing, error) {
	output, err := command.ReadOutput(c)
	if err != nil {
		return listing{}, err
	}
	config, err := p.readConfig(c)
	return listing{Config: config, output: output, noSummary: c.Bool("no-summary")}, err
}

// list asks all hosts a question, keeps one answer for each machine, and prints the
// answers with write.
func list[T any](p *program, c *cli.Context, question func(*fleet, context.Context, remote.Host) (T, error),
	write func(listing, []remote.Result[T], []controller.Duplicate) error,
) error {
	flags, err := p.readListing(c)
	if err != nil {
		return err
	}
	f, err := p.open(flags.Config)
	if err != nil {
		return err
	}
	defer f.close()
	asker := f.asker()
	results := controller.Ask(c.Context, asker, func(ctx context.Context, h remote.Host) (T, error) { return question(f, ctx, h) })
	results, duplicates := controller.Distinct(c.Context, asker, results)
	failures := render.FailuresOf(results)
	f.report(failures, duplicates)                                                                  // first, so that the table is what remains on the screen
	if stopped := f.StopAtFailure && len(failures) > 0; !stopped || flags.output.Format == "json" { // which names the failures
		if err := write(flags, results, duplicates); err != nil {
			return err
		}
	}
	return f.exit(failures, duplicates)
}
