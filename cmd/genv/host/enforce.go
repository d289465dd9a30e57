package host

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (p *hostCommands) enforceCommand() *cli.Command {
	o, labels := new(enforcement.LoopFlags), []string(nil)
	return &cli.Command{
		Name: "enforce", Category: command.Configured, Usage: "enforce the rules on this machine, in a loop",
		Flags: append(o.Flags(), command.Strings(&labels, "label",
			"a label of this machine for the policy, as `KEY=VALUE`; several times").Many()),
		Action: func(c *cli.Context) error { return p.enforceHere(c, o, labels) },
	}
}

func (p *hostCommands) enforceHere(c *cli.Context, flags *enforcement.LoopFlags, words []string) error {
	labels := make(map[string]string)
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			return command.WrongFlag("label", " %q: write KEY=VALUE, such as use=train", text.Printable(word))
		}
		labels[key] = value
	}
	host := p.openHost()
	defer host.SMI.Keep(c.Context)()
	host.Machine.Types = new(nvidiasmi.Types)
	host.log = p.Logger(c)
	link := &localLink{host: host}
	defer host.stopWatching()
	announce := func(id string, _ *fence.LeaseRequest) { link.asker.Store(new("enforce " + id)) }
	allowance := &allowances{pass: host.Service.Allow}
	defer allowance.close()
	read := func() (enforcement.Options, error) {
		o, err := flags.Read(c)
		if err == nil {
			err = enforcement.UseHostGroups(o.Policy, inventory.Selection{}, p.Getenv)
		}
		if err == nil {
			link.policy.Store(o.Policy)
		}
		o.Hosts, o.Link, o.Announce, o.Fanout = []remote.Host{{Labels: labels}}, link, announce, 1
		o.Allow = func(byHost map[snapshot.Hostname]*service.Allowance) { allowance.renew(byHost[""]) }
		o.LocalName, o.CycleLimit = snapshot.Hostname(enforcelocal.Hostname()), 4*time.Minute
		o.Progress = &render.Progress{}
		return o, err
	}
	options, err := read()
	if err != nil {
		return err
	}
	return enforcement.Run(c.Context, &p.Program, host.log, options, read)
}

type localLink struct {
	host   *host
	policy atomic.Pointer[policy.File]
	asker  atomic.Pointer[string] // names the run in the list of askedList
}

func (l *localLink) Await(ctx context.Context, _ remote.Host, done func(woke bool, err error)) {
	go func() {
		err := l.host.Wait(ctx)
		done(err == nil, err)
	}()
}

func (l *localLink) Snapshot(ctx context.Context, h remote.Host) (*snapshot.Snapshot, error) {
	here := enforce.Query{Host: snapshot.Hostname(enforcelocal.Hostname()), Labels: h.Labels, At: l.host.record.now()}
	s, err := l.host.forController(l.host.look(ctx, local.Age{Oldest: l.policy.Load().Settings(here).MaxAge}))
	if err != nil {
		return nil, &remote.Error{Class: remote.CommandFailed, Err: err}
	}
	return s, nil
}

func (l *localLink) Execute(ctx context.Context, _ remote.Host, o order.Order) (agent.Execution, error) {
	var asker ending.Authority // without a name it is root's, and never refused
	if name := l.asker.Load(); name != nil {
		asker.Name = *name
	}
	return l.host.Execute(ctx, o, asker)
}

func (l *localLink) Notify(ctx context.Context, _ remote.Host, messages []agent.Message) ([]agent.Receipt, error) {
	return l.host.notify(ctx, messages), nil
}

func (l *localLink) Guard(context.Context, remote.Host, agent.GuardRequest) (agent.GuardAnswer, error) {
	return agent.GuardAnswer{}, agent.ErrCannotGuard
}

func (l *localLink) About(remote.Host) agent.About { return agent.About{} }

// hostRecord writes this host's audit log. On failure it only warns, and actions continue: the controller's log
// decides.
type hostRecord struct {
	path string
	now  func() time.Time
	by   string
	proc proc.FS
}

func (r *hostRecord) items(o order.Order, refused []order.Termination) []audit.Record {
	o.Terminate = slices.Concat(o.Terminate, refused)
	items := audit.OrderRecords(snapshot.Hostname(enforcelocal.Hostname()), o, nil)
	for i := range items {
		item := &items[i]
		item.Order, item.By = o.ID, r.by
		if item.Order == "" {
			item.Order = fmt.Sprintf("%d/%d", os.Getpid(), r.now().UnixNano())
		}
		if item.PID != 0 && item.UID == nil {
			if uid, err := r.proc.Owner(item.PID); err == nil {
				item.UID = &uid
			}
		}
	}
	return items
}

func (r *hostRecord) append(records []audit.Record) (warnings []string) {
	if r.path == "" || len(records) == 0 {
		return nil
	}
	for i := range records {
		records[i].Time = r.now().UTC()
	}
	if err := audit.AppendHostLog(r.path, nss.Passwd{}, records...); err != nil {
		return []string{fmt.Sprintf("not recorded on this host: %v", err)}
	}
	return nil
}

// notify keeps unread messages for the next login.
func (h *host) notify(ctx context.Context, messages []agent.Message) []agent.Receipt {
	here := enforcelocal.Terminals{Host: enforcelocal.Hostname()}
	shown := make([]agent.Receipt, len(messages))
	if h.noMessages {
		return shown
	}
	ctx, cancel := context.WithTimeout(ctx, namesWithin)
	defer cancel()
	var records []audit.Record
	for i, m := range messages {
		r := audit.Record{
			Kind: audit.KindNotified, Channel: audit.ChannelTerminal, IDs: m.IDs,
			Host: snapshot.Hostname(here.Host), UID: &m.UID, Text: m.Text, By: h.record.by,
		}
		if m.Over {
			r.Kind, r.Channel = audit.KindCleared, ""
			records = append(records, r)
			_ = h.box().End(m.UID, m.IDs, h.record.now()) // fails without root, which has no notices
			continue
		}
		if m.DueMS > 0 { // the message may be read later
			r.Due = h.record.now().Add(time.Duration(m.DueMS) * time.Millisecond).UTC()
			m.Text += "\nDue at " + snapshot.When(r.Due.Local()) + "."
		}
		notified := here.Notify(m.UID, m.Text)
		shown[i].Terminals = len(notified.Terminals)
		if kept := h.keep(ctx, m, notified.Terminals); kept && !notified.InUse {
			shown[i].Kept, r.Channel = true, audit.ChannelLogin
		}
		if shown[i].Terminals > 0 || shown[i].Kept {
			records = append(records, r)
		}
	}
	h.record.append(records)
	return shown
}

// keep keeps a message for its user, as root only. The uid must have an account, because state files may name any uid.
func (h *host) keep(ctx context.Context, m agent.Message, terminals []string) bool {
	if os.Geteuid() != 0 {
		return false
	}
	if name, err := h.names.lookUp(ctx, m.UID); err == nil && name == "" {
		return false
	}
	return h.box().Keep(m.UID, m.Text, terminals, h.record.now(), m.IDs...) == nil
}

func (h *host) box() notify.Box { return notify.Box{Root: disk.RootDir(h.getenv)} }
