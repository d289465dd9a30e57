package policy

import "github.com/seed-3119e985/genv/snapshot"

// Accounts are the names that users have besides the one under which rules know them: an
// account of a directory can have several, and so can a uid in /etc/passwd. A rule for one of
// them holds for all, since they are one user.
type Accounts map[snapshot.Username]snapshot.Username

// Name is the name under which rules know a user.
func (a Accounts) Name(user snapshot.Username) snapshot.Username {
	if name, other := a[user]; other {
		return name
	}
	return user
}
