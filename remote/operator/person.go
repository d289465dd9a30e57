package operator

import (
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Person is who asks, as the kernel says: never by a name that a client claims.
type Person struct {
	UID  snapshot.UID
	Name snapshot.Username // of UID; empty if it has none
	// Login is the user who logged in, if the kernel knows that (loginuid(5)) and it is
	// another one, as after sudo; nil otherwise.
	Login     *snapshot.UID
	LoginName snapshot.Username
}

// String names the person for the record, as in "alice (uid 1000), as root".
func (p Person) String() string {
	if p.Login == nil {
		return named(p.Name, p.UID)
	}
	as := fmt.Sprintf("uid %d", p.UID)
	if p.Name != "" {
		as = text.Shown(string(p.Name))
	}
	return fmt.Sprintf("%s, as %s", named(p.LoginName, *p.Login), as)
}

func named(name snapshot.Username, uid snapshot.UID) string {
	if name == "" {
		return fmt.Sprintf("uid %d", uid)
	}
	return fmt.Sprintf("%s (uid %d)", text.Shown(string(name)), uid)
}
