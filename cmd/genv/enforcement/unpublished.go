package enforcement

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// unpublished is why the memory of a leader is not in etcd as it is here. It is safe for concurrent use.
type unpublished struct {
	mu    sync.Mutex
	epoch uint64 // of the leader
	kind  string // of the last error; empty for none
	since time.Time
}

// turn notes the kind of an error, and reports whether that is another one than before.
func (u *unpublished) turn(kind string, now time.Time) (changed bool) {
	if u.kind == "" {
		u.since = now
	}
	changed, u.kind = kind != u.kind, kind
	return changed
}

// errTooLong says that the memory is in etcd without a part.
var errTooLong = errors.New("too large for etcd")

// sayUnpublished logs once that the memory could not be written to etcd, again for an error of another
// kind, and once that it is written again.
func (l *loop) sayUnpublished(err error) {
	if errors.Is(err, errNotPublished) {
		return // the election says why
	}
	u, epoch, now := &l.part.unpublished, l.part.Status().Epoch, l.program.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.epoch != epoch {
		u.epoch, u.kind = epoch, ""
	}
	kind, reason, next := unpublishedBecause(err)
	switch {
	case !u.turn(kind, now):
	case err == nil:
		l.log.Warn().Msgf("the memory is written to etcd again, after %s", text.ShortDuration(now.Sub(u.since)))
	default:
		l.log.Warn().Str("error", reason).Msg("the memory can't be written to etcd: if another controller takes over, warning periods start again" + next)
	}
}

// freeSpace is what to do when etcd's space is used up.
const freeSpace = "`etcdctl compact REVISION` with the revision that `etcdctl endpoint status -w json` shows, then `etcdctl defrag` and `etcdctl alarm disarm`"

// unpublishedBecause says why a memory could not be written to etcd: the kind of an error is the same for all
// that mean the same. Without an error it is empty.
func unpublishedBecause(err error) (kind, reason, next string) {
	switch {
	case err == nil:
		return "", "", ""
	case errors.Is(err, errTooLong):
		return errTooLong.Error(), err.Error(), ""
	case !etcd.Refused(err):
		return "no answer", etcdText(err), "; next: `etcdctl endpoint health`"
	case strings.Contains(err.Error(), "database space exceeded"):
		return err.Error(), err.Error(), "; next: " + freeSpace
	}
	return err.Error(), err.Error(), "; next: `etcdctl endpoint health`"
}

// etcdText is the text of an error of etcd without Go's words for a request that takes too long.
func etcdText(err error) string {
	return strings.ReplaceAll(err.Error(), context.DeadlineExceeded.Error(), "no answer")
}
