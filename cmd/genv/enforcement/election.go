package enforcement

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/statedir"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// participation is a run's part in an election; nil for a run without one, which acts.
type participation struct {
	*election.Elector
	client *etcd.Gateway
	work   sync.WaitGroup
	cancel context.CancelFunc // stops work

	registrar *election.Registrar
	written   atomic.Pointer[time.Time] // last write of the memory to etcd in this term; nil for never
}

func (l *loop) takePart(ctx context.Context, options *Options) error {
	if options.Leader.Key == "" {
		return nil
	}
	if l.folder == nil {
		return command.WrongFlag("leader", needsFolder)
	}
	candidate := election.Candidate{ID: l.self.ID, Name: l.self.name()}
	registration := election.Registration{
		Candidate: candidate, Host: l.self.Hostname, Version: l.program.Version, Hosts: len(options.Hosts),
	}
	configured(&registration, options)
	client, key := etcd.New(options.Leader.Etcd), options.Leader.Key
	l.part = &participation{
		Elector: election.New(election.Options{
			Cluster: client, Key: key, Self: candidate, Clock: election.SinceBoot, Now: time.Now, Works: l.mayLead,
		}),
		registrar: election.NewRegistrar(client, key, registration, func(err error) {
			l.log.Warn().AnErr("etcd", err).Msg("etcd refuses to register this controller: `genv remote doctor` " +
				"doesn't show it as it is")
		}),
		client: client,
	}
	ctx, l.part.cancel = context.WithCancel(ctx)
	l.part.work.Go(func() { l.part.registrar.Run(ctx) })
	return nil
}

// configured describes the options: a standby may have other hosts or another policy.
func configured(r *election.Registration, options *Options) {
	r.Interval, r.HostsDigest, r.Policy = options.Interval.Seconds(), digestOf(options.Hosts), options.Policy.Digest()
}

// digestOf doesn't depend on the order of hosts.
func digestOf(hosts []remote.Host) string {
	names := make([]string, len(hosts))
	for i, h := range hosts {
		names[i] = h.Name
	}
	slices.Sort(names)
	sum := sha256.Sum256([]byte(strings.Join(names, "\n")))
	return hex.EncodeToString(sum[:8])
}

// standBy looks for viewers only.
func (l *loop) standBy(ctx context.Context) error {
	if l.term != nil {
		l.options.Announce("", nil)
	}
	l.term, l.lease, l.store = nil, nil, nil
	l.part.written.Store(nil)
	return l.cycles(ctx, controller.FleetMemory{}, drain)
}

const (
	// drain is how long an ending role waits for outcomes. A grace may be longer, and the next term may begin.
	drain = 3 * time.Second

	unrecordedCycles = 2       // consecutive ones after which a leader resigns
	roomToLead       = 1 << 20 // bytes that the record must have room for before it leads again
)

func (l *loop) lead(ctx context.Context, t election.Term) error {
	l.term, l.laterSince = ctx, time.Time{}
	l.part.written.Store(nil)
	l.lease = l.self.lease(fence.Election(t.Cluster, l.part.Key), t.Epoch, l.options.TakeOver)
	l.store, l.unsaved = l.shared(l.part.client, t.Epoch), ""
	return l.cycles(ctx, l.load(ctx), drain)
}

func (l *loop) shared(cluster statedir.Cluster, epoch uint64) *statedir.Shared {
	return &statedir.Shared{
		Folder: l.folder, Cluster: cluster, Key: l.part.Key, Self: l.self.ID, Epoch: epoch,
		Followed: l.part.Status().Followed,
	}
}

// resign saves the memory for the next leader, and sends mail.
func (l *loop) resign() {
	if l.store != nil && l.mayAct() == nil {
		l.saveNow(l.store)
	}
	l.mail.close(mailWithin)
	what := "ended as a standby"
	switch status := l.part.Status(); status.Role {
	case election.Leading:
		what = "resigned after leading for " + text.ShortDuration(l.program.Now().Sub(status.Since)) +
			": another controller can lead now"
	case election.Expired:
		what = "ended while it wasn't known whether this controller still leads"
	case election.Standby:
	}
	log := l.log.Level(zerolog.InfoLevel) // as for other changes of the election
	log.Info().Msg(what)
}

func (l *loop) mayLead() bool { return l.service.works() && !l.unable.Load() }

// noteRecord gives up the lead if cycles can't be recorded. A standby has little to record, so it tries to reserve
// room.
func (l *loop) noteRecord(round *controller.Round) {
	switch {
	case l.part == nil || l.record == nil || l.options.ActUnrecorded || round.Stopped:
	case round.Unrecorded != nil:
		if l.unrecorded++; l.unrecorded >= unrecordedCycles && !l.unable.Swap(true) {
			l.log.Warn().AnErr("record", round.Unrecorded).Msg("the record can't be written, so this controller may " +
				"not act: it gives up the lead until there is room")
		}
	default:
		if l.unrecorded = 0; l.unable.Load() && l.record.Reserve(roomToLead) == nil {
			l.unable.Store(false)
			l.log.Warn().Msg("the record can be written again: this controller can lead")
		}
	}
}

func cycled(r *election.Registration, round *controller.Round, now time.Time) {
	answered := round.Cluster.CountAnswered()
	r.Cycled, r.Hosts, r.Answered = now.Truncate(time.Second).UTC(), len(round.Cluster.Hosts), &answered
}

func (l *loop) acts() bool { return l.part == nil || l.term != nil }

// mayAct returns why nothing may begin now, for callers without the context of a cycle; nil if it may.
func (l *loop) mayAct() error {
	switch {
	case l.part == nil:
		return nil
	case l.term == nil:
		return election.ErrNotLeading
	}
	return remote.MayBegin(l.term)
}

func (p *participation) shown() *election.StatusDocument {
	if p == nil {
		return nil
	}
	status := p.Status()
	shown := status.Shown()
	if at := p.written.Load(); at != nil && status.Role != election.Standby {
		shown.Memory = at.Truncate(time.Second).UTC()
	}
	return shown
}

func (p *participation) wrote(err error, now time.Time) {
	if p != nil && (err == nil || errors.Is(err, statedir.ErrTooLarge)) {
		p.written.Store(&now)
	}
}

func (p *participation) configure(options *Options) {
	if p == nil {
		return
	}
	p.SetPolicy(options.Policy.Digest())
	if p.registrar != nil {
		p.registrar.Set(func(r *election.Registration) { configured(r, options) })
	}
}

// logElection doesn't run in the loop.
func (l *loop) logElection(status *election.Status, takeOver bool) {
	line := electionLine(status, takeOver)
	if line == "" || line == l.loggedElection {
		return
	}
	l.loggedElection = line
	log := l.log.Level(zerolog.InfoLevel)
	event := log.Info()
	if status.Err != nil {
		event = log.Warn().Str("etcd", text.Late(status.Err, 0).Error())
	}
	event.Msg(line)
}

// electionLine is the state of the election; empty until etcd knows who leads.
func electionLine(status *election.Status, takeOver bool) string {
	if status.Role == election.Standby && status.Err == nil && !status.LeaderKnown() {
		return ""
	}
	line := status.Shown().String()
	if takeOver && status.Role == election.Standby {
		line += "; --take-over has no effect until this controller leads"
	}
	return line
}

func (p *participation) close() {
	if p != nil {
		p.cancel()
		p.work.Wait()
		p.client.Close()
	}
}
