package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/readonly"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// Commands asks hosts of any version with the commands and in the format of 1.4.3: `genv usage snapshot` and `genv
// usage execute`. It repeats a command only if a busy sshd dropped the connection at random.
type Commands struct {
	Network Network
	Measure bool             // ask nvidia-smi for utilization, temperature and power, which the 1.4.3 format lacks
	Log     zerolog.Logger   // gets the unreadable parts of a snapshot
	slow    time.Duration    // how long the login took: commands may take that much longer
	types   *nvidiasmi.Types // the types of the host's processes; nil to leave them out
}

func (Commands) via() Via               { return ViaCommands }
func (Commands) capabilities() []string { return []string{RequestSnapshot, RequestExecute} }
func (Commands) close()                 {}

func (c Commands) run(ctx context.Context, host remote.Host, command remote.Command) (remote.Output, error) {
	if deadline, ok := ctx.Deadline(); ok && c.slow > 0 {
		command.Timeout = time.Until(deadline)
	}
	out, err := remote.UntilNotBusy(ctx, func() (remote.Output, error) { return c.Network.Run(ctx, host, command) })
	if err != nil && remote.ClassOf(err) != remote.CommandFailed {
		err = remote.Diagnose(ctx, c.Network, host, err)
	}
	return out, err
}

// Snapshot asks a host for its snapshot.
func (c Commands) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	s, warnings, err := usageSnapshot(ctx, c, host, snapshot.DecodeSnapshot)
	if err != nil {
		return nil, err
	}
	s.Warnings = append(s.Warnings, boundLines(warnings, maxWarnings)...)
	s.Bound()
	if c.Measure {
		c.measure(ctx, host, s)
	}
	if c.types != nil {
		c.setTypes(ctx, host, s)
	}
	return s, nil
}

// measure adds what nvidia-smi measures, without sudo. What fails or hangs is unknown.
func (c Commands) measure(ctx context.Context, host remote.Host, s *snapshot.Snapshot) {
	ctx, cancel := leavingTime(ctx, 3, 4)
	defer cancel()
	found, err := readonly.Reading{Runner: c.Network}.Devices(ctx, host)
	if err != nil {
		s.Warnings = append(s.Warnings, "the utilization, temperature and power of the GPUs are unknown: "+err.Error())
		return
	}
	s.Devices = snapshot.Described(s.Devices, found)
}

func leavingTime(ctx context.Context, parts, of time.Duration) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)*parts/of)
}

const typesWithin = 10 * time.Second // how long a snapshot waits for the types of processes

func (c Commands) setTypes(ctx context.Context, host remote.Host, s *snapshot.Snapshot) {
	ctx, cancel := leavingTime(ctx, 1, 2)
	defer cancel()
	ctx, end := context.WithTimeout(ctx, typesWithin)
	defer end()
	numbered := make(map[snapshot.DeviceIndex]snapshot.GPUUUID, len(s.Devices))
	for i := range s.Devices {
		numbered[s.Devices[i].Index] = numberOf(s.Devices[i].Index)
	}
	c.types.Set(ctx, s, numbered, time.Now(), typeSource{readonly.Reading{Runner: c.Network}, host}, nil)
}

func numberOf(index snapshot.DeviceIndex) snapshot.GPUUUID {
	return snapshot.GPUUUID(strconv.Itoa(int(index)))
}

type typeSource struct {
	look readonly.Reading
	host remote.Host
}

func (s typeSource) Devices(ctx context.Context, _ time.Duration) (nvidiasmi.Listing, error) {
	if !nvidiasmi.MayCall(ctx) {
		return nvidiasmi.Listing{}, nvidiasmi.ErrTimeout
	}
	numbered := nvidiasmi.Listing{Time: nvidiasmi.Time{Began: time.Now()}}
	devices, err := s.look.Devices(ctx, s.host)
	for _, d := range devices {
		d.UUID = numberOf(d.Index)
		numbered.GPUs = append(numbered.GPUs, nvidiasmi.GPU{Device: d})
	}
	return numbered, err
}

func (s typeSource) Details(ctx context.Context, _ time.Duration) (nvidiasmi.Details, error) {
	began := time.Now()
	details, err := s.look.Details(ctx, s.host)
	details.Time.Began = began
	return details, err
}

// Devices asks for the devices and their attachments only.
func (c Commands) Devices(ctx context.Context, host remote.Host) ([]snapshot.Device, error) {
	return part(ctx, c, host, snapshot.ReadDevices, "devices")
}

// Environments asks for the environments only.
func (c Commands) Environments(ctx context.Context, host remote.Host) ([]snapshot.Environment, error) {
	return part(ctx, c, host, snapshot.ReadEnvironments, "envs")
}

// part asks for a part of a snapshot. It leaves out what it can't read.
func part[T any](ctx context.Context, c Commands, host remote.Host, read func([]byte) (T, []string, error),
	name string,
) (T, error) {
	var odd []string
	host.NoSudo = true // every login may see it, and hosts log or mail each refused sudo
	value, _, err := usageSnapshot(ctx, c, host, func(data []byte) (value T, err error) {
		value, odd, err = read(data)
		return value, err
	}, "--type", name)
	for _, note := range odd {
		c.Log.Warn().Msg("[" + host.Name + "] " + note)
	}
	return value, err
}

// Execute has a host carry out an order, once.
func (c Commands) Execute(ctx context.Context, host remote.Host, o order.Order) (Execution, error) {
	stdin, err := order.Encode143(o)
	if err != nil {
		return Execution{}, &remote.Error{Class: remote.InvalidOutput, Err: err}
	}
	command := host.Genv("usage", "execute")
	command.Stdin = stdin
	out, err := c.run(ctx, host, command)
	if remote.ClassOf(err) == remote.OpenSSH { // ssh doesn't say whether the command had begun
		err = remote.Errorf(remote.OutcomeUnknown, "what came of the order is not known: %w", err)
	}
	items := len(o.Detach) + len(o.Terminate)
	return Execution{
		Lines:    boundLines(lines(out.Stdout), 2*items+maxBanner),
		Warnings: boundLines(lines(out.Stderr), 2*items+maxWarnings),
	}, err
}

func usageSnapshot[T any](ctx context.Context, c Commands, host remote.Host, parse func([]byte) (T, error),
	flags ...string,
) (value T, warnings []string, err error) {
	out, err := c.run(ctx, host, host.Genv(append([]string{"usage", "snapshot"}, flags...)...))
	if err != nil {
		return value, nil, err
	}
	twice := false
	document := jsonIn(out.Stdout, func(object []byte) {
		_, err := parse(object)
		twice = twice || err == nil
	})
	class := remote.InvalidOutput
	if len(document) == 0 {
		err = fmt.Errorf("genv answered without a JSON document (%d bytes)", len(out.Stdout))
	} else if twice {
		err = errors.New("genv answered with two JSON documents")
	} else if value, err = parse(document); errors.Is(err, snapshot.ErrOtherVersion) {
		class = remote.Version
	}
	if err != nil {
		err = &remote.Error{Class: class, Err: err, Stderr: string(out.Stderr)}
	}
	return value, lines(out.Stderr), err
}

const maxBanner = 1024 // lines that a login may print before those of genv

func lines(text []byte) []string {
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' || r == '\r' })
}

// withoutRoot is the error where genv runs without root: it can't see the environments of other users' processes.
func withoutRoot(host remote.Host) error {
	next := "have sudo run genv as root there (`sudo -n genv usage serve`): look for runas_default and " +
		"`Runas` in sudoers"
	if host.NoSudo {
		next = "remove `sudo: false` for it from hosts.yaml and allow genv in sudoers, as docs/fleet.md says, or " +
			"log in as root"
	}
	if host.Personal {
		next = remote.PersonalStep
	}
	return remote.Errorf(remote.Sudo, "genv runs without root on %s: it shows GPUs and environments, and nothing can "+
		"be enforced", host.Name).WithNext(next)
}

const whichUser = `echo; echo "genv-uid $(id -u)"`

func (c Commands) requireRoot(ctx context.Context, host remote.Host) error {
	if !host.NoSudo {
		return nil
	}
	out, err := c.Network.Run(ctx, host, remote.Command{Args: []string{"sh", "-c", whichUser}})
	if err != nil {
		return err
	}
	for _, line := range lines(out.Stdout) {
		if uid, ok := strings.CutPrefix(line, "genv-uid "); ok && strings.TrimSpace(uid) == "0" {
			return nil
		}
	}
	return withoutRoot(host)
}

// Notify returns ErrCannotNotify: genv 1.4.3 has no such command.
func (Commands) Notify(context.Context, remote.Host, []Message) ([]Receipt, error) {
	return nil, ErrCannotNotify
}

// Guard returns ErrCannotGuard: genv 1.4.3 knows no guard.
func (Commands) Guard(context.Context, remote.Host, GuardRequest) (GuardAnswer, error) {
	return GuardAnswer{}, ErrCannotGuard
}

// About returns what earlier answers told about a host.
func (c Commands) About(host remote.Host) About {
	peer, _ := c.Network.Peer(host)
	return About{Via: ViaCommands, Peer: peer}
}

// Visible is what every login sees without sudo: the devices with attachments and measurements, the environments, and
// the processes on devices without their environments. It comes from genv, or from nvidia-smi and /proc where via is
// ViaReadOnly. If there are state files but the login doesn't find genv, it is an error: devices may be attached.
func (c Commands) Visible(ctx context.Context, host remote.Host) (s *snapshot.Snapshot, via Via, err error) {
	host.NoSudo = true
	devices, err := c.Devices(ctx, host)
	if err != nil && remote.ClassOf(err) == remote.GenvMissing {
		s, registered, failed := c.visible(ctx, host, 0)
		if failed == nil && registered {
			return nil, ViaReadOnly, err
		}
		return s, ViaReadOnly, failed
	}
	var environments []snapshot.Environment
	if err == nil {
		environments, err = c.Environments(ctx, host)
	}
	unread := err
	if err != nil && remote.ClassOf(err) != remote.CommandFailed {
		return nil, ViaCommands, err
	}
	// genv is there, so GenvMissing means that nvidia-smi is missing.
	if s, _, err = c.visible(ctx, host, len(devices)); err != nil && remote.ClassOf(err) == remote.GenvMissing {
		err = remote.Errorf(remote.CommandFailed, "%w", err).
			WithNext("install NVIDIA's driver with nvidia-smi on the host, where every login finds it")
	}
	if err != nil {
		return nil, ViaCommands, err
	}
	s.Devices, s.Environments = snapshot.Described(devices, s.Devices), environments
	// An older genv has no queue.
	if q, _, err := usageSnapshot(ctx, c, host, snapshot.DecodeNative, "--type", "queue"); err == nil {
		s.Waits, s.Reservations = q.Waits, q.Reservations
	}
	if unread != nil {
		s.HideState(unread)
	}
	return s, ViaCommands, nil
}

// visible is what nvidia-smi and /proc show of a host with at least so many GPUs, with user names and the time zone of
// attachments. registered says whether the host has genv's state files.
func (c Commands) visible(ctx context.Context, host remote.Host, gpus int,
) (s *snapshot.Snapshot, registered bool, err error) {
	look := readonly.Reading{Runner: c.Network}
	s, err = look.Look(ctx, host, gpus)
	if err != nil {
		return nil, false, err
	}
	described := look.Describe(ctx, host, s.Processes)
	s.UTCOffset = described.UTCOffset
	for i := range s.Processes {
		if p := &s.Processes[i]; p.UID != nil {
			p.Username = described.Names[*p.UID]
		}
	}
	return s, described.Registered, nil
}
