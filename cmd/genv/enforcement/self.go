package enforcement

import (
	"context"
	"time"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/remote/sshclient/nss"
	"github.com/seed-3119e985/genv/snapshot"
)

// nameTimeout is how long the name of an operator may take: a directory may not answer.
const nameTimeout = 2 * time.Second

// UserNames are those of users, as the system knows them.
func UserNames() live.Usernames {
	service := nss.New()
	return func(ctx context.Context, uid snapshot.UID) snapshot.Username {
		ctx, cancel := context.WithTimeout(ctx, nameTimeout)
		defer cancel()
		user, err := service.UserOf(ctx, int(uid))
		if err != nil {
			return "" // the uid alone names the person, too
		}
		return snapshot.Username(user.Name)
	}
}

// Self is the person who runs this program.
func Self(ctx context.Context) operator.Person {
	return live.PersonOf(ctx, socket.Self(), UserNames())
}
