package host

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/seed-3119e985/genv/enforce/audit"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// hostRecord writes this host's audit log. If it can't be written, that is a warning,
// and actions are still carried out: the log of the controller decides about that.
type hostRecord struct {
	path string
	now  func() time.Time
	by   string
	proc proc.FS
}

// items are the records of what will be done.
func (r *hostRecord) items(o order.Order, refused []order.Termination) []audit.Record {
	o.Terminate = append(o.Terminate[:len(o.Terminate):len(o.Terminate)], refused...)
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

// append writes records, and warns if that fails.
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

// notify writes messages to users' terminals, and keeps them to be read again. What has not been
// read waits for the next login of its user. Both are in this host's audit log.
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
			continue
		}
		if m.DueMS > 0 { // a notice may be read later than it is written
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

// keep keeps a message for its user. Only root keeps any, and only for
// those who have an account: state files may name any uid.
func (h *host) keep(ctx context.Context, m agent.Message, terminals []string) bool {
	if os.Geteuid() != 0 {
		return false
	}
	if name, err := h.names.lookUp(ctx, m.UID); err == nil && name == "" {
		return false
	}
	return notify.Box{Root: disk.RootDir(h.getenv)}.Keep(m.UID, m.Text, terminals, h.record.now()) == nil
}
