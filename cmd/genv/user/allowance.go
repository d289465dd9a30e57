package user

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// allowanceWithin is how long root's service may take to say what is allowed: it may ask the controller.
const allowanceWithin = 4 * time.Second

// capsText is for `genv status`: what counts for each cap about this user, and what it allows. It is empty if there is
// none, or if that is unknown: root's service alone knows it, as long as the policy is enforced.
func (p *program) capsText(ctx context.Context, who *hostUser) string {
	if who.Store.MayWrite() {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, allowanceWithin)
	defer cancel()
	told, err := who.Service.Allowance(ctx)
	if err != nil || told == nil || told.String() == "" {
		return ""
	}
	return text.Printable(told.String()) + "\n" + p.lastNotice()
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
