package user

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// allowanceWithin is how long root's service may take to say how many GPUs are allowed.
const allowanceWithin = time.Second

// allowance is how many GPUs a policy allows this user; nil if there is no cap, or if that is unknown: root's
// service alone knows it, as long as the policy is enforced.
func (w *hostUser) allowance(ctx context.Context) *service.Allowance {
	if w.Store.MayWrite() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, allowanceWithin)
	defer cancel()
	said, err := w.Service.Allowance(ctx)
	if err != nil || said == nil || said.GPUs == nil {
		return nil
	}
	return said
}

// attachedTo is to how many GPUs the environments of a user are attached.
func attachedTo(files *state.Files, uid snapshot.UID) int {
	gpus := make(map[snapshot.DeviceIndex]bool)
	for i := range files.Environments {
		if env := &files.Environments[i]; env.UID == uid && !env.OwnerMismatch {
			for _, index := range files.AttachedTo(env.EID) {
				gpus[index] = true
			}
		}
	}
	return len(gpus)
}

// allowanceText is for `genv status`: what is allowed, and attached on this host. What the user has on other hosts
// isn't known here, but the user may have been told of it.
func (p *program) allowanceText(a *service.Allowance, here int) string {
	switch {
	case a == nil:
		return ""
	case a.OneHost:
		return fmt.Sprintf("%d of %s allowed\n", here, text.Plural(*a.GPUs, "GPU"))
	}
	return fmt.Sprintf("%s allowed on all hosts together, %d attached on this one; those on other hosts count, too\n%s",
		text.Plural(*a.GPUs, "GPU"), here, p.lastNotice())
}

// lastNotice is a line about the last notice of a day; empty if there is none, or if that is unknown.
func (p *program) lastNotice() string {
	list, err := p.box().Notices(ownUID(), p.Now())
	if err != nil || len(list) == 0 || p.Now().Sub(list[len(list)-1].Time) > 24*time.Hour {
		return ""
	}
	return fmt.Sprintf("genv notices shows what you were told last at %s\n",
		list[len(list)-1].Time.Local().Format("15:04"))
}

// warnOfExcess warns a user who has more GPUs on this host than are allowed. What the user has on other hosts
// isn't known here.
func (p *program) warnOfExcess(ctx context.Context, who *hostUser) {
	a := who.allowance(ctx)
	if a == nil {
		return
	}
	files, err := who.StateFiles(ctx)
	here := attachedTo(&files, who.uid)
	if err != nil || here <= *a.GPUs {
		return
	}
	where := ""
	if !a.OneHost {
		where = " on all hosts together"
	}
	p.Warn(fmt.Sprintf("Warning: you have %s on this host, and the policy allows %d%s, not counting exempt ones: give "+
		"back %d with genv detach --index N",
		text.Plural(here, "GPU"), *a.GPUs, where, here-*a.GPUs))
}
