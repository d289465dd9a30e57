package fleet

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/checkup"
	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/policycheck"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/remote/companions"
	"github.com/seed-3119e985/genv/remote/controller"
	remotedoctor "github.com/seed-3119e985/genv/remote/doctor"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/doctor"
)

type doctorOptions struct {
	hostFlags
	leader enforcement.Leader
	format string
	policy string
	all    bool
}

func doctorCommand(h hostFlags) *cli.Command {
	o := &doctorOptions{hostFlags: h}
	const leaderUsage = "also check the election of controllers at this `URL`, " +
		"such as etcd://a:2379,b:2379,c:2379/genv/lab or, with TLS, etcds://…; off for none"
	return &cli.Command{
		Name:  "doctor",
		Usage: "check every host and which controllers act, and print the next step for each problem; it changes nothing",
		Flags: o.flags(allHosts, append(o.leader.Flags(leaderUsage, command.Shared),
			command.FormatFlag(&o.format, "tui", "json"),
			command.String(&o.policy, "policy", "policy `FILE` that says which guard hosts are to have, or none; "+
				"by default policy.yaml in ~/.config/genv or /etc/genv").Config(command.Top|command.Shared|command.OrNone).Hide(),
			command.Bool(&o.all, "all", "print the details of what is in order too"))...),
		Action: o.run,
	}
}

// readLeader reads the flags about a leader. It skips the election if only another account may read a file.
func (o *doctorOptions) readLeader() error {
	if o.leader.Off() {
		return nil
	}
	err := o.leader.Read(o.Getenv, true)
	if errors.Is(err, fs.ErrPermission) {
		o.Warn("the election is not checked: " + err.Error())
		o.leader.Key, err = "", nil
	}
	return err
}

func (o *doctorOptions) run(c *cli.Context) error {
	config, err := o.readConfig(c)
	if err != nil {
		return err
	}
	if err := o.readLeader(); err != nil {
		return err
	}
	config.SSH.MaxStdout = 4 << 20
	f, err := o.open(config)
	if err != nil {
		return err
	}
	defer f.close()
	document := f.examine(c.Context, &o.leader, o.wantedGuards())
	f.progress.End()
	render.WriteDuplicates(o.Err, document.Duplicates)
	if o.format == "json" {
		err = render.WriteJSON(o.Out, document)
	} else {
		style := checkup.StyleOf(o.Program)
		style.All, style.TableOnly = o.all, f.Quiet
		err = checkup.WriteFleet(o.Out, document, style)
	}
	if err != nil {
		return err
	}
	return checkup.Exit(document.Status)
}

// wantedGuards is the guard that a policy wants on each host; nil without a policy, or if it can't be read, with a
// warning.
func (o *doctorOptions) wantedGuards() func(remote.Host) snapshot.GuardMode {
	if o.policy == "" || o.policy == command.NoPolicy {
		return nil
	}
	file, err := policycheck.ReadPolicy(o.policy)
	if err != nil {
		o.Warn("the guards are not compared with the policy: " + err.Error())
		return nil
	}
	return func(h remote.Host) snapshot.GuardMode {
		host := snapshot.Host{Name: snapshot.Hostname(h.Name), Labels: h.Labels}
		return snapshot.GuardMode(companions.WantedGuard(file, &host, o.Now()).Mode.String())
	}
}

// examine examines a machine with two names twice.
func (f *fleet) examine(
	ctx context.Context, leader *enforcement.Leader, guards func(remote.Host) snapshot.GuardMode,
) *remotedoctor.FleetReport {
	d := &remotedoctor.Doctor{
		Client: f.client, Timeout: f.SSH.CommandTimeout, Now: f.Now, Insecure: f.SSH.InsecureHostKeys,
		Acting: f.pool.Acting, Guard: guards,
	}
	asker := f.asker()
	results := controller.Ask(ctx, asker, func(ctx context.Context, h remote.Host) (*remotedoctor.HostReport, error) {
		found := d.Examine(ctx, h)
		if found.Failure != nil {
			return &found, remote.Errorf(found.Failure.Class, "%s", found.Failure.Error)
		}
		return &found, nil
	})
	_, duplicates := controller.Distinct(asker, results)
	examined := make([]remotedoctor.HostReport, len(results))
	for i, r := range results {
		if r.Value != nil {
			examined[i] = *r.Value
		} else { // stopped before this host
			examined[i] = remotedoctor.NotBegun(r.Host, r.Err)
		}
	}
	var election *remotedoctor.Election
	if leader.Key != "" {
		election = remotedoctor.AskEtcd(ctx, leader.Etcd, leader.Key, leader.Health())
	}
	self, _ := os.Executable()
	document := remotedoctor.DocumentOf(examined, election,
		doctor.GenvProgram{Path: self, Version: f.Version, Protocol: frame.Version}, f.Now())
	document.Duplicates = append(document.Duplicates, duplicates...)
	return &document
}
