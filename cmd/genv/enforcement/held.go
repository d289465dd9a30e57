package enforcement

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// holds says what a safety limit holds back, when that begins and then now and then.
func (w *cycleWriter) holds(e *enforce.Event, now time.Time) {
	key := heldKey(e.Held)
	if w.held == nil {
		w.held = make(map[string]time.Time)
	}
	if _, known := w.held[key]; !known {
		w.held[key] = now
	}
	if again, ok := w.repeats.admit("held "+key, now); ok {
		w.remark(e.Text + ". If it is intended, raise `limits:` in the policy." + again)
	}
}

func heldKey(h *safety.Held) string {
	if h == nil {
		return ""
	}
	return string(h.Host) + "/" + string(h.User)
}

// released says for which users and hosts nothing is held back any more.
func (w *cycleWriter) released(cycle *controller.Cycle, now time.Time) {
	if len(w.held) == 0 || cycle.Stopped {
		return
	}
	left := make(map[string]bool)
	for _, list := range [][]safety.Held{cycle.Plan.HeldHosts, cycle.Plan.HeldUsers} {
		for i := range list {
			left[heldKey(&list[i])] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.held)) {
		if left[key] {
			continue
		}
		host, user, _ := strings.Cut(key, "/")
		where := "on this machine"
		switch {
		case user != "" && host != "":
			where = fmt.Sprintf("against user %s on host %s", text.Shown(user), host)
		case user != "":
			where = "against user " + text.Shown(user)
		case host != "":
			where = "on host " + host
		}
		w.remark(fmt.Sprintf("No safety limit holds actions back any more %s, after %s.", where, text.ShortDuration(now.Sub(w.held[key]))))
		delete(w.held, key)
		w.repeats.forget("held " + key)
	}
}
