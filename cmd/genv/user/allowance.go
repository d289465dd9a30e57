package user

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// capsText is for `genv status`: what counts for each cap about this user, and what it allows. It is empty if there is
// none, or if that is unknown.
func (p *program) capsText(ctx context.Context) string {
	told := localhost.Told(ctx, p.Program)
	if told == nil || told.String() == "" {
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
