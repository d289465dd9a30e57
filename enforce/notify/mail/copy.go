package mail

import (
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// newCopies is the Post of what goes to one address of `copy-to:`. Each address has a queue and connections
// of its own, so that one that fails or hangs delays neither users nor the others.
func newCopies(o Options, to string) *Post {
	warn := o.Warn
	o.Warn = func(err error) { warn(fmt.Errorf("copies to %s: %w", to, err)) }
	o.Done = func(r Result) {
		if r.Err != nil {
			warn(notCopied(r.Letter, to, r.Err))
		}
	}
	p := newPost(o)
	p.copyTo = to
	return p
}

func notCopied(l Letter, to string, err error) error {
	return fmt.Errorf("the copy to %s of a mail to %s was not sent: %w", to, text.Shown(string(l.User)), err)
}

// copy passes on what was sent to a user, unless that went to the same address.
func (p *Post) copy(sent *Result, message []byte) {
	for _, c := range p.copies {
		if !strings.EqualFold(c.copyTo, sent.To) {
			c.Send(Letter{User: sent.User, message: message})
		}
	}
}

// errEnded is why a copy was lost: only mails to users are kept over the end of a run.
var errEnded = fmt.Errorf("the run ended before the mail server took it")
