package report

import "github.com/seed-3119e985/genv/remote/usage"

// FairShareDays is how long the time of a fair-share report is, unless another one is asked for.
const FairShareDays = 30

// FairShare compares users with an equal share.
type FairShare struct {
	// Users is how many had something attached. Users who aren't known by name don't count.
	Users int `json:"active_users"`
	// Equal is the attached time of these users, divided among them.
	Equal int64 `json:"equal_seconds"`
}

// CompareWithEqual adds to a report by user how each user's attached time compares with an
// equal share among the users who had something attached. Users who aren't known by name are not
// compared: how many people they are isn't known.
func (d *Document) CompareWithEqual() {
	sum := int64(0)
	d.FairShare = new(FairShare)
	for i := range d.Rows {
		if r := &d.Rows[i]; isUser(r.Key) && r.Attached > 0 {
			d.FairShare.Users++
			sum += r.Attached
		}
	}
	if d.FairShare.Users == 0 {
		return
	}
	d.FairShare.Equal = sum / int64(d.FairShare.Users)
	for i := range d.Rows {
		if r := &d.Rows[i]; isUser(r.Key) && r.Attached > 0 {
			r.OfEqual = new(float64(r.Attached) * float64(d.FairShare.Users) / float64(sum))
			r.OverEqual = new(r.Attached - d.FairShare.Equal)
		}
	}
}

// isUser reports whether a key is the name of one user.
func isUser(key string) bool {
	return usage.IsNamed(key) && key != OtherUsers
}

// OtherUsers is the row of the users of whom a viewer may not see the names.
const OtherUsers = "(other users)"

// HideUsers joins the rows of a report by user into one, but for one user's own; empty for none.
func (d *Document) HideUsers(but string) {
	others := Row{Key: OtherUsers}
	rows, hidden := []Row{}, false
	for i := range d.Rows {
		if r := &d.Rows[i]; but != "" && r.Key == but {
			rows = append(rows, *r)
		} else {
			others.add(r)
			others.Share += r.Share
			hidden = true
		}
	}
	if hidden {
		rows = append(rows, others)
	}
	d.Rows, d.LeftOut = rows, 0
}
