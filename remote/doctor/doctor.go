// Package doctor examines hosts from a controller, and says what is wrong and what to do: from name resolution to
// login, sudo, the clock, and the host's own `genv doctor`.
//
//	d := &doctor.Doctor{Client: client, Timeout: 30 * time.Second, Now: time.Now}
//	results := remote.Each(ctx, hosts, 64, func(ctx context.Context, h remote.Host) (doctor.HostReport, error) {
//		return d.Examine(ctx, h), nil
//	})
//
// A host with genv 1.4.3 or none makes no checks of its own. sudo only runs `sudo -n -l`, which lists what is allowed,
// and `genv usage serve`, which says which controller acts, and tries what acting needs on a process of its own.
// Nothing changes the host.
//
// Hosts may lie: their output is bounded, never sets the next step, and can't change the controller's findings.
package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Doctor examines hosts. It is safe for concurrent use.
type Doctor struct {
	// Client reaches hosts, such as a *sshclient.Client.
	Client interface {
		remote.Runner
		// Way returns how a host is reached, without connecting.
		Way(ctx context.Context, host remote.Host) (sshclient.Way, error)
		// Peer returns the machine of the host's last connection; false if there was none.
		Peer(host remote.Host) (remote.Peer, bool)
		// LoginTook is how long that connection's login took; 0 if unknown.
		LoginTook(host remote.Host) time.Duration
	}
	Timeout  time.Duration    // for all commands on a host; connecting uses the Client's
	Now      func() time.Time // the controller's clock
	Insecure bool             // host keys aren't checked
	// Acting, if set, asks root's `genv usage serve` which controller acts on a host.
	Acting func(ctx context.Context, host remote.Host) (agent.Acting, error)
	// Guard, if set, returns the kernel guard that the policy wants on a host.
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
	Failure *remote.Failure    `json:"-"` // why no command ran there, or nil

	acting *agent.Acting // nil if unknown
}

// Check returns the check of this name. Each host has all of doctor.Names.
func (h *HostReport) Check(name doctor.Name) *doctor.Check {
	return &h.Checks[slices.IndexFunc(h.Checks, func(c doctor.Check) bool { return c.Name == name })]
}

type examination struct {
	*Doctor
	host  remote.Host
	token string // marks our commands' output
	way   sshclient.Way
	HostReport

	user, uid string              // of the login, by the survey; empty if unknown
	sudoTook  time.Duration       // approximate
	trial     remote.SudoResult   // zero if not tried
	programs  map[string]genvFile // by PATH: of the "login", of "sudo", or the "usual" folders
}

func (d *Doctor) begin(host remote.Host) *examination {
	e := &examination{Doctor: d, host: host, token: "genv-" + rand.Text()}
	e.Host = host.Name
	for _, name := range doctor.Names() {
		e.Checks = append(e.Checks, doctor.Unknown(name, notTried))
	}
	return e
}

const notTried = "not tried"

// Examine examines a host. What couldn't run is Skipped.
func (d *Doctor) Examine(ctx context.Context, host remote.Host) HostReport {
	began, e := time.Now(), d.begin(host)
	if e.resolve(ctx) {
		e.look(ctx)
	}
	e.TookMS = time.Since(began).Milliseconds()
	return e.conclude()
}

// NotBegun reports a host that was not examined.
func NotBegun(host remote.Host, why error) HostReport {
	e := (*Doctor)(nil).begin(host)
	e.fail(doctor.NameResolution, why)
	return e.conclude()
}

func (e *examination) conclude() HostReport {
	if e.Status = doctor.Overall(e.Checks); e.Status == doctor.OK && e.Failure != nil {
		e.Status = doctor.Skipped // it was stopped
	}
	return e.HostReport
}

func (e *examination) add(checks ...doctor.Check) {
	for _, c := range checks {
		*e.Check(c.Name) = c
	}
}

// fail adds a failed check. The cause is the error's class, unless the table has a better one.
func (e *examination) fail(name doctor.Name, err error, table ...doctor.Check) {
	e.add(doctor.First(name, append(table, failed(name, err))...))
	f := remote.FailureOf(e.host.Name, err)
	e.Failure = &f
}

func failed(name doctor.Name, err error) doctor.Check {
	f := remote.FailureOf("", err)
	c := doctor.Problem(name, doctor.Cause(f.Class), "%s", f.Error).Next(f.NextStep)
	if f.Class == remote.Cancelled {
		c.Status = doctor.Skipped
	}
	return c
}

func (e *examination) look(ctx context.Context) {
	began := time.Now()
	if !e.survey(ctx) {
		return
	}
	// The survey's time may mostly be a passphrase prompt.
	ctx, cancel := context.WithTimeout(ctx, e.Timeout-min(time.Since(began), e.Timeout/2))
	defer cancel()
	e.add(e.checkSudo())
	e.checkGenv(ctx)
	e.askActing(ctx)
}

// run retries if sshd is too busy.
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
	Status   doctor.CheckStatus `json:"status"` // of the worst host or controller
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

// DocumentOf judges hosts' controllers, and counts hosts. e is nil without an election.
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

func (e *examination) resolve(ctx context.Context) bool {
	way, err := e.Client.Way(ctx, e.host)
	e.way = way
	if err != nil {
		e.fail(doctor.NameResolution, err, doctor.If(errors.Is(err, remote.ErrNoNames), "no-name-service", "%v", err),
			doctor.If(remote.ClassOf(err) == remote.Unreachable, "no-such-name", "%v", err))
	} else if way.Direct() {
		e.add(doctor.Good(doctor.NameResolution, "%s is %s", way.Settings.HostName, addresses(way)))
	}
	return err == nil
}

func addresses(way sshclient.Way) string {
	words := make([]string, len(way.Addresses))
	for i, a := range way.Addresses {
		words[i] = netip.AddrPortFrom(a, uint16(way.Settings.Port)).String()
	}
	return strings.Join(words, ", ")
}

func (e *examination) reached(peer remote.Peer) {
	through := "to " + cmp.Or(peer.Address, "an unknown address")
	if !e.way.Direct() {
		through = "through a ProxyCommand"
		if hops := e.way.Settings.ProxyJump; e.way.OpenSSH {
			through = "by ssh(1)"
		} else if len(hops) > 0 {
			through = "through the jump host " + text.OneLine(strings.Join(hops, ","))
		}
		e.add(doctor.Good(doctor.NameResolution, "%s, resolved %s", e.way.Settings.HostName, through))
	}
	e.Address = peer.Address
	e.add(doctor.Good(doctor.TCP, "connected %s", through), e.keyOf(peer))
}

func (e *examination) keyOf(peer remote.Peer) doctor.Check {
	return doctor.Judge(doctor.HostKey, fmt.Sprintf("%s is the known one", cmp.Or(peer.HostKey, "unknown")),
		doctor.If(e.Insecure, "host-key-unchecked", "%s was not checked", peer.HostKey))
}

func (e *examination) unreached(err error) {
	class := remote.ClassOf(err)
	peer, shown := sshclient.Shown(err)
	switch {
	case class == remote.Cancelled:
		e.fail(doctor.TCP, err)
	case class == remote.HostKey, class == remote.HostKeyChanged:
		e.answered()
		e.fail(doctor.HostKey, err)
	case e.way.Direct() && (shown || class == remote.Auth):
		e.answered()
		e.add(e.keyOf(peer))
		e.fail(doctor.Login, err)
	case class == remote.Auth, class == remote.OpenSSH, class == remote.Configuration:
		e.fail(doctor.Login, err)
	default:
		is := func(cause error) bool { return errors.Is(err, cause) }
		e.fail(doctor.TCP, err,
			doctor.If(is(syscall.ECONNREFUSED), "connection-refused", "%v", err),
			doctor.If(is(syscall.EHOSTUNREACH) || is(syscall.ENETUNREACH), "no-route", "%v", err),
			doctor.If(class == remote.Timeout, "silent", "%v", err),
			doctor.If(class == remote.Unreachable && is(context.DeadlineExceeded), "no-answer", "%v", err))
	}
}

// answered adds that an SSH server answered, if that is surely the host's.
func (e *examination) answered() {
	if e.way.Direct() {
		e.add(doctor.Good(doctor.TCP, "an SSH server answers at port %d", e.way.Settings.Port))
	}
}

func (e *examination) checkSudo() doctor.Check {
	t := &e.trial
	path, account := cmp.Or(t.Genv, remote.DefaultGenv), remote.SudoersAccount(e.user, e.uid)
	step := remote.SudoStep(remote.SudoRefused, account, path)
	refusal := cmp.Or(t.Refusal(), new(remote.Error))
	coverage := map[bool][]string{} // of a controller's needs
	for _, command := range []string{"snapshot", "execute", "serve"} {
		has := slices.Contains(t.Allows, "usage "+command) || command == "serve" && t.Runs != ""
		coverage[has] = append(coverage[has], command)
	}
	covered := "covers usage " + strings.Join(coverage[true], ", ") + " of " + path
	refused := refusal.Class == remote.SudoRefused && coverage[true] != nil
	part := t.Lists && coverage[false] != nil && (refused || refusal.Class == "")
	check := doctor.Judge(doctor.Sudo, covered,
		doctor.If(e.host.NoSudo && e.uid == "0", "", "not needed: the login is root"),
		doctor.If(e.host.NoSudo, "no-root", "genv runs without root, so nothing can be enforced"),
		doctor.If(e.sudoTook >= sudoSlow, "sudo-slow", "`sudo -n -l` took about %s", e.sudoTook),
		doctor.If(t.UID == "", doctor.Unsure, notTried),
		doctor.If(t.NeedsTTY && t.Runs == "", "sudo-requires-tty", "%v", refusal.Err).Next(refusal.Next),
		doctor.If(t.Genv == "" && t.Lists && t.Runs == "", "", "sudo answers, and no genv was found to try"),
		doctor.If(part, doctor.Cause(remote.SudoRefused), "%s, and not %s", covered,
			strings.Join(coverage[false], ", ")).Next(step),
		doctor.If(refusal.Class != "", doctor.Cause(refusal.Class), "%v", refusal.Err).Next(refusal.Next),
		doctor.If(!t.Lists, "", "covers usage serve of %s, and lists no more", path),
		doctor.If(slices.Contains(t.Allows, remote.AllowsEverything), "sudo-covers-everything",
			"covers every command, so the account is root").
			Next("give the controller an account of its own, and "+step),
		doctor.If(slices.Contains(t.Allows, remote.AllowsAllOfGenv), "sudo-covers-all-of-genv",
			"covers all of %s, which can run any program as root", path).Next(step))
	if e.host.Personal && check.NextStep != "" {
		check.NextStep = remote.PersonalStep
	}
	return check
}
