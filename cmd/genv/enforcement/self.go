package enforcement

import (
	"context"
	"net/http"
	"time"

	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live/actions"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/remote/sshclient/nss"
	"github.com/seed-3119e985/genv/snapshot"
)

// nameTimeout is how long the name of an operator may take: a directory may not answer.
const nameTimeout = 2 * time.Second

// actionsFor serves what operators ask a run to do by hand.
func actionsFor(queue *controller.Queue, setup *Setup) http.Handler {
	do := queue.Do
	if setup.LookOnly {
		do = actions.Refuse(operator.Refuse(operator.Unable, "Ask the controller that runs genv remote enforce.", "this is genv remote watch: it changes nothing"))
	}
	return actions.New(do, names(nss.New()))
}

// names are those of users, as the system knows them.
func names(service *nss.Service) actions.Names {
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
	return actions.PersonOf(ctx, socket.Self(), names(nss.New()))
}
