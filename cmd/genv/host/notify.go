package host

import (
	"context"
	"os"

	"github.com/seed-3119e985/genv/enforce/audit"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/notify/login"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// notify writes messages to users' terminals. What reaches none is kept for the next
// login of its user. Both are in this host's audit log.
func (h *host) notify(ctx context.Context, messages []agent.Message) []agent.Shown {
	here := enforcelocal.Terminals{Host: enforcelocal.Hostname()}
	shown := make([]agent.Shown, len(messages))
	if h.noMessages {
		return shown
	}
	ctx, cancel := context.WithTimeout(ctx, namesWithin)
	defer cancel()
	var records []audit.Record
	for i, m := range messages {
		shown[i].Terminals = here.Notify(m.UID, m.Text)
		r := audit.Record{Kind: audit.KindNotified, Channel: audit.ChannelTerminal, IDs: m.IDs, Host: snapshot.Hostname(here.Host), UID: &m.UID, Text: m.Text, By: h.record.by}
		if shown[i].Terminals == 0 {
			shown[i].Kept = h.keep(ctx, m)
			r.Channel = audit.ChannelLogin
		}
		if shown[i].Terminals > 0 || shown[i].Kept {
			records = append(records, r)
		}
	}
	(&reportRecord{hostRecord: h.record}).append(records)
	return shown
}

// keep keeps a message for the next login of its user. Only root keeps any, and only for
// those who have an account: state files may name any uid.
func (h *host) keep(ctx context.Context, m agent.Message) bool {
	if os.Geteuid() != 0 {
		return false
	}
	if name, err := h.names.lookUp(ctx, m.UID); err == nil && name == "" {
		return false
	}
	box := login.Box{Root: disk.RootDir(h.getenv)}
	return box.Keep(m.UID, m.Text, h.record.now()) == nil
}
