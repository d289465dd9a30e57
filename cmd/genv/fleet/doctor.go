package fleet

import (
	"cmp"
	"context"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/checkup"
	"github.com/seed-3119e985/genv/cmd/genv/checkup/hosts"
	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	remotedoctor "github.com/seed-3119e985/genv/remote/doctor"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/doctor/bundle"
)

func (p *program) doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "check every host (name, SSH, sudo, genv, driver, disks and so on), and print the next step for each problem; it changes nothing",
		Flags: append(append(remoteFlags(), command.OutputFlags()...),
			&cli.BoolFlag{Name: "all", Usage: "print the details of what is in order too"},
			checkup.BundleFlag(),
			&cli.StringFlag{Name: "policy", Usage: "the policy `FILE` for the bundle, instead of the default policy.yaml"}),
		Action: p.remoteDoctor,
	}
}

// maxDoctorOutput bounds what a command of ours may print on a host, in bytes.
const maxDoctorOutput = 4 << 20

func (p *program) remoteDoctor(c *cli.Context) error {
	output, err := command.ReadOutput(c)
	if err != nil {
		return err
	}
	config, err := p.readConfig(c)
	if err != nil {
		return err
	}
	config.SSH.MaxStdout = maxDoctorOutput
	report, err := checkup.OpenBundle(c, p.Program)
	if err != nil {
		return err
	}
	f, err := p.open(config)
	if err != nil {
		report.Abandon()
		return err
	}
	defer f.close()
	document, duplicates := f.examine(c.Context)
	f.progress.End()
	render.WriteDuplicates(p.Err, duplicates)
	if output.Format == "json" {
		err = render.WriteJSON(p.Out, doctorDocument{document, duplicatesOrNone(duplicates)})
	} else {
		style := checkup.StyleOf(p.Program, output)
		style.All, style.TableOnly = c.Bool("all"), f.Quiet
		err = hosts.Write(p.Out, document, style)
	}
	written := report.Write(c.Context, document, func(file *bundle.File) error {
		return addFleet(file, f.Hosts, document.Hosts, c.String("policy"))
	})
	if err := cmp.Or(err, written); err != nil {
		return err
	}
	return checkup.Exit(document.Status)
}

// doctorDocument is the JSON of `genv remote doctor`; docs/json.md describes it.
type doctorDocument struct {
	*remotedoctor.Document
	Duplicates []controller.Duplicate `json:"duplicates"`
}

func duplicatesOrNone(d []controller.Duplicate) []controller.Duplicate {
	return append([]controller.Duplicate{}, d...)
}

// examine looks at all hosts. Names of one machine are each examined.
func (f *fleet) examine(ctx context.Context) (*remotedoctor.Document, []controller.Duplicate) {
	d := &remotedoctor.Doctor{Client: f.client, Timeout: f.SSH.CommandTimeout, Now: f.program.Now, Insecure: f.SSH.InsecureHostKeys}
	asker := f.asker()
	results := controller.Ask(ctx, asker, func(ctx context.Context, h remote.Host) (*remotedoctor.Host, error) {
		found := d.Examine(ctx, h)
		if found.Failure != nil {
			return &found, remote.Errorf(found.Failure.Class, "%s", found.Failure.Error)
		}
		return &found, nil
	})
	_, duplicates := controller.Distinct(ctx, asker, results)
	examined := make([]remotedoctor.Host, len(results))
	for i, r := range results {
		if r.Value == nil { // it was stopped before this one
			examined[i] = remotedoctor.NotBegun(r.Host, r.Err)
			continue
		}
		examined[i] = *r.Value
	}
	self, _ := os.Executable() // empty is unknown
	document := remotedoctor.DocumentOf(examined, doctor.Program{Path: self, Version: f.program.Version, Protocol: agent.Version}, f.program.Now())
	return &document, duplicates
}
