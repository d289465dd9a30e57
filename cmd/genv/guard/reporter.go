package guard

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/guard"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// reporter records denials in this host's audit log, for `genv history`, and shows them to the user.
type reporter struct {
	log       zerolog.Logger
	now       func() time.Time
	append    func(...audit.Record) error // nil for no audit log
	show      func(snapshot.UID, string)  // nil for no notices
	account   func(snapshot.UID) snapshot.UID
	collect   time.Duration // how long to collect devices for one notice
	hostname  snapshot.Hostname
	recorded  map[string]time.Time // by account, device and kind of denial
	mu        sync.Mutex           // protects the fields below
	noticedAt map[snapshot.UID]time.Time
	pending   map[snapshot.UID][]guard.Denial
}

const (
	recordEvery   = 10 * time.Minute // by user and device: some programs open all devices all day
	noticeEvery   = time.Minute
	collectFor    = 200 * time.Millisecond // programs open one device after the other
	maxRemembered = 10_000                 // users
)

func newReporter(p *command.Program, log zerolog.Logger) *reporter {
	here := enforcelocal.Terminals{Host: enforcelocal.Hostname()}
	r := &reporter{
		log: log, now: p.Now, collect: collectFor, hostname: snapshot.Hostname(here.Host),
		recorded:  map[string]time.Time{},
		noticedAt: map[snapshot.UID]time.Time{}, pending: map[snapshot.UID][]guard.Denial{},
	}
	r.account = func(uid snapshot.UID) snapshot.UID {
		account, _ := proc.FS{}.Account(uid) // or proc.UnknownAccount
		return account
	}
	if path := localhost.HostLog(p.Getenv); path != "" {
		r.append = func(records ...audit.Record) error { return audit.AppendHostLog(path, nss.Passwd{}, records...) }
	}
	if p.Getenv("GENV_TELL") != "off" {
		r.show = func(uid snapshot.UID, message string) { here.Notify(uid, message) }
	}
	return r
}

// denied isn't safe for concurrent use.
func (r *reporter) denied(d guard.Denial) {
	if d.Denied && !slices.Contains(looking, d.Name) {
		r.notice(d)
	}
	r.record(d)
}

// looking are programs that open every device only to show it, so users need no notice.
var looking = []string{"nvidia-smi", "nvtop", "gpustat", "nvitop", "dcgmi"}

func (r *reporter) record(d guard.Denial) {
	if r.append == nil {
		return
	}
	// Unknown accounts share a key for each device: anybody can run processes with thousands of uids (subuid(5)).
	key := fmt.Sprint(r.account(d.UID), d.Minor, d.Denied)
	if at, ok := r.recorded[key]; ok && r.now().Sub(at) < recordEvery {
		return
	}
	if len(r.recorded) >= maxRemembered {
		clear(r.recorded)
	}
	r.recorded[key] = r.now()
	if err := r.append(r.recordOf(d)); err != nil {
		r.log.Error().Err(err).Msg("a denial is not recorded on this host")
	}
}

func (r *reporter) recordOf(d guard.Denial) audit.Record {
	record := audit.Record{
		Time: r.now().UTC(), Kind: audit.KindDenied, Host: r.hostname, UID: &d.UID, PID: d.PID, Device: d.Index,
	}
	record.Action, record.Text = audit.ActionWouldDeny, "opening it would be denied in mode enforce"
	if d.Denied {
		record.Action, record.Text = audit.ActionDenied, "opening it was denied"
	}
	record.Text = deviceName(&d) + " is not attached: " + record.Text
	if d.Name != "" {
		record.Text += fmt.Sprintf(" (program %s)", text.Shown(d.Name))
	}
	return record
}

func deviceName(d *guard.Denial) string {
	if d.Index == nil {
		return fmt.Sprintf("/dev/nvidia%d", d.Minor)
	}
	return "GPU " + d.Index.String()
}

// notice waits for other denials before it shows one.
func (r *reporter) notice(d guard.Denial) {
	if r.show == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, waits := r.pending[d.UID]
	if at, ok := r.noticedAt[d.UID]; ok && !waits && r.now().Sub(at) < noticeEvery {
		return
	}
	if len(r.noticedAt) >= maxRemembered {
		clear(r.noticedAt)
	}
	r.pending[d.UID], r.noticedAt[d.UID] = append(r.pending[d.UID], d), r.now()
	if !waits {
		time.AfterFunc(r.collect, func() { r.showPending(d.UID) })
	}
}

func (r *reporter) showPending(uid snapshot.UID) {
	r.mu.Lock()
	list := r.pending[uid]
	delete(r.pending, uid)
	r.mu.Unlock()
	r.show(uid, noticeOf(list))
}

func noticeOf(list []guard.Denial) string {
	if last := list[len(list)-1]; last.Subordinate {
		return deviceName(&last) + " can't be opened with a subordinate uid: run as root of the container, which is you"
	}
	var indices []snapshot.DeviceIndex
	for i := range list {
		if list[i].Index != nil {
			indices = append(indices, *list[i].Index)
		}
	}
	slices.Sort(indices)
	indices = slices.Compact(indices)
	switch len(indices) {
	case 0:
		return fmt.Sprintf("/dev/nvidia%d is not attached to you: genv gpus", list[0].Minor)
	case 1:
		return fmt.Sprintf("GPU %s is not attached to you: genv attach --index %s", indices[0], indices[0])
	}
	return fmt.Sprintf("GPUs %s are not attached to you: genv attach --index %s, for example",
		text.JoinIndices(indices), indices[0])
}
