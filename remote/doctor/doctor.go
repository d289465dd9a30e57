// Package doctor looks at hosts as a controller sees them, and says for each what is not in order and what to do about
// it: from the name to the login, what sudo allows there, the clock, and what the host's own `genv doctor` finds.
//
//	d := &doctor.Doctor{Client: client, Timeout: 30 * time.Second, Now: time.Now}
//	results := remote.Each(ctx, hosts, 64, func(ctx context.Context, h remote.Host) (doctor.HostReport, error) {
//		return d.Examine(ctx, h), nil
//	})
//
// Where the host has genv 1.4.3 or none, its own checks are skipped. Nothing is run with sudo but `sudo -n -l`, which
// lists what is allowed, and `genv usage serve`, which says which controller acts there, and tries what acting needs
// on a process of its own. Nothing changes the host.
//
// Hosts may lie about themselves: their output is bounded and checked, never tells the
// next step, and can't change what the controller found.
package doctor

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/doctor"
)

// Connector reaches hosts; *sshclient.Client implements it.
type Connector interface {
	remote.Runner
	// Way is how a host is reached, without a connection.
	Way(ctx context.Context, host remote.Host) (sshclient.Way, error)
	// Peer is the machine of the host's last connection; false if there was none.
	Peer(host remote.Host) (remote.Peer, bool)
	// LoginTook is how long the login of that connection took; 0 if that is not known.
	LoginTook(host remote.Host) time.Duration
}

// Doctor examines hosts. It is safe for concurrent use.
type Doctor struct {
	Client Connector
	// Timeout is for all commands on a host together. Connecting has that of the Client.
	Timeout time.Duration
	Now     func() time.Time // the controller's clock
	// Insecure says that host keys are not checked.
	Insecure bool
	// Acting, if set, asks root's `genv usage serve` on a host which controller acts there.
	Acting func(ctx context.Context, host remote.Host) (agent.Acting, error)
	// Guard, if set, is the kernel guard that the policy wants on a host.
	Guard func(host remote.Host) snapshot.GuardMode
}

// HostReport is what was found about a host.
type HostReport struct {
	Host    string             `json:"host"`
	Status  doctor.CheckStatus `json:"status"` // skipped if genv was stopped before
	TookMS  int64              `json:"took_ms"`
	Address string             `json:"address,omitempty"` // of the connection
	Genv    doctor.GenvProgram `json:"genv"`
	System  doctor.System      `json:"system"`
	Checks  []doctor.Check     `json:"checks"`
	Failure *remote.Failure    `json:"-"` // why no command ran there; nil if one did

	acting *agent.Acting // nil if that isn't known
}

// Check is the check with a name. Each host has all of doctor.Names.
func (h *HostReport) Check(name doctor.Name) *doctor.Check {
	return &h.Checks[slices.IndexFunc(h.Checks, func(c doctor.Check) bool { return c.Name == name })]
}

type examination struct {
	*Doctor
	host  remote.Host
	token string         // marks the output of our commands
	way   *sshclient.Way // nil if the configuration can't be used
	found map[doctor.Name]doctor.Check
	HostReport
}

func (d *Doctor) begin(host remote.Host) *examination {
	e := &examination{Doctor: d, host: host, token: "genv-" + rand.Text(), found: map[doctor.Name]doctor.Check{}}
	e.Host = host.Name
	return e
}

// Examine looks at a host. What could not be looked at is Skipped.
func (d *Doctor) Examine(ctx context.Context, host remote.Host) HostReport {
	began, e := time.Now(), d.begin(host)
	if e.resolve(ctx) {
		e.look(ctx)
	}
	e.TookMS = time.Since(began).Milliseconds()
	return e.conclude()
}

// NotBegun is a host that was not examined.
func NotBegun(host remote.Host, why error) HostReport {
	e := (*Doctor)(nil).begin(host)
	e.fail(doctor.NameResolution, why)
	return e.conclude()
}

// conclude puts the checks in order, and decides the status.
func (e *examination) conclude() HostReport {
	for _, name := range doctor.Names() {
		c, made := e.found[name]
		if !made {
			c = doctor.Unknown(name, "not tried")
		}
		e.Checks = append(e.Checks, c)
	}
	if e.Status = doctor.Overall(e.Checks); e.Status == doctor.OK && e.Failure != nil {
		e.Status = doctor.Skipped // it was stopped
	}
	return e.HostReport
}

func (e *examination) add(checks ...doctor.Check) {
	for _, c := range checks {
		e.found[c.Name] = c
	}
}

// fail adds a check that failed, and that no command ran. The class of the error is the cause, unless
// a row of a table knows a better one.
func (e *examination) fail(name doctor.Name, err error, table ...doctor.Check) {
	e.add(doctor.First(name, append(table, failed(name, err))...))
	f := remote.FailureOf(e.host.Name, err)
	e.Failure = &f
}

func failed(name doctor.Name, err error) doctor.Check {
	f := remote.FailureOf("", err)
	status := doctor.Failed
	if f.Class == remote.Cancelled {
		status = doctor.Skipped
	}
	return doctor.Check{
		Name: name, Status: status, Cause: doctor.Cause(f.Class), Detail: doctor.OneLine(f.Error),
		NextStep: f.NextStep,
	}
}

// look connects to the host, and makes the checks for which commands run there.
func (e *examination) look(ctx context.Context) {
	began := time.Now()
	s, ok := e.survey(ctx)
	if !ok {
		return
	}
	// What the survey took may be mostly a question for a passphrase.
	ctx, cancel := context.WithTimeout(ctx, e.Timeout-min(time.Since(began), e.Timeout/2))
	defer cancel()
	e.System = s.system
	e.add(e.checkSudo(&s))
	e.checkGenv(ctx, s)
	e.askActing(ctx)
}

// run runs a command on the host. It repeats what a busy sshd refused.
func (e *examination) run(ctx context.Context, command remote.Command) (remote.Output, error) {
	return remote.UntilNotBusy(ctx, func() (remote.Output, error) { return e.Client.Run(ctx, e.host, command) })
}

// Schema names the document of `genv remote doctor --format json`; docs/json.md describes it.
const Schema = "genv.remote.doctor/1"

// FleetReport is what a controller found about a fleet.
type FleetReport struct {
	Schema   string             `json:"schema"`
	Time     time.Time          `json:"time"`
	Genv     doctor.GenvProgram `json:"genv"`   // of the controller
	Status   doctor.CheckStatus `json:"status"` // that of the worst host or controller
	OK       int                `json:"ok"`     // hosts
	Warnings int                `json:"warnings"`
	Failures int                `json:"failures"`
	Hosts    []HostReport       `json:"hosts"`
	// Controllers are the checks of an election.
	Controllers []doctor.Check   `json:"controllers"`
	Failed      []remote.Failure `json:"failed"` // hosts on which no command ran
	// Duplicates are examined as well.
	Duplicates []controller.Duplicate `json:"duplicates"`
}

// DocumentOf judges the controllers of hosts, and counts hosts. e is nil if there is no election.
func DocumentOf(hosts []HostReport, e *Election, genv doctor.GenvProgram, at time.Time) FleetReport {
	d := FleetReport{
		Schema: Schema, Time: at.UTC(), Genv: genv, Hosts: hosts, Failed: []remote.Failure{},
		Duplicates: []controller.Duplicate{},
	}
	d.judgeControllers(e)
	d.Status = doctor.Overall(d.Controllers)
	for i := range hosts {
		switch hosts[i].Status {
		case doctor.Failed:
			d.Failures++
		case doctor.Warning:
			d.Warnings++
		default:
			d.OK++
		}
		if hosts[i].Status.Worse(d.Status) {
			d.Status = hosts[i].Status
		}
		if hosts[i].Failure != nil {
			d.Failed = append(d.Failed, *hosts[i].Failure)
		}
	}
	return d
}
