package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// ActionsPath is where actions are sent to.
const ActionsPath = "/api/v1/actions"

// maxActionBytes is how long a request may be.
const maxActionBytes = 16 << 10

// Do carries an action out. An error that is a *operator.Refusal goes to the person.
type Do func(context.Context, operator.Person, operator.Action) (operator.Answer, error)

// RefuseActions is a Do that refuses all actions.
func RefuseActions(because *operator.Refusal) Do {
	return func(context.Context, operator.Person, operator.Action) (operator.Answer, error) {
		return operator.Answer{}, because
	}
}

// Usernames finds the name of a uid; empty if it has none.
type Usernames func(ctx context.Context, uid snapshot.UID) snapshot.Username

// NewActions returns the handler of POST ActionsPath, for a unix socket only. The server has to use socket.WithPeer.
func NewActions(do Do, names Usernames) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := serveAction(w, r, do, names)
		if err == nil {
			sendAnswer(w, http.StatusOK, answer)
			return
		}
		var refusal *operator.Refusal
		if !errors.As(err, &refusal) {
			refusal = operator.Refuse(operator.Unable, "Look at the log of the controller.", "%v", err)
		}
		sendAnswer(w, statusOf(refusal.Code), refusal)
	})
}

func serveAction(w http.ResponseWriter, r *http.Request, do Do, names Usernames) (operator.Answer, error) {
	peer, known := socket.PeerOf(r.Context())
	if own := snapshot.UID(os.Geteuid()); !known || peer.UID != 0 && peer.UID != own { //nolint:gosec // a uid fits
		return operator.Answer{}, operator.Refuse(operator.Forbidden, "Ask an administrator, or use sudo.",
			"only root and the account of the controller (uid %d) may do this; you may look", own)
	}
	action, err := readAction(w, r)
	if err != nil {
		return operator.Answer{}, err
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // that of the request would end what follows
	return do(r.Context(), PersonOf(r.Context(), peer, names), action)
}

// readAction reads an action, and refuses what it doesn't understand in full.
func readAction(w http.ResponseWriter, r *http.Request) (operator.Action, error) {
	var action operator.Action
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return action, invalid("the Content-Type is not application/json")
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxActionBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&action); err != nil {
		return action, invalid("not an action: %v", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return action, invalid("there is more than one action")
	}
	return action, nil
}

func invalid(format string, args ...any) error {
	return operator.Refuse(operator.Invalid, "Correct the request; docs/json.md describes it.", format, args...)
}

// PersonOf names a peer. The user who logged in counts only for root: it says who used sudo.
func PersonOf(ctx context.Context, peer socket.Peer, names Usernames) operator.Person {
	person := operator.Person{UID: peer.UID, Name: names(ctx, peer.UID)}
	if peer.UID == 0 && peer.Login != nil && *peer.Login != peer.UID {
		person.Login, person.LoginName = peer.Login, names(ctx, *peer.Login)
	}
	return person
}

func statusOf(code operator.Code) int {
	switch code {
	case operator.Invalid:
		return http.StatusBadRequest
	case operator.Forbidden:
		return http.StatusForbidden
	case operator.Changed, operator.Protected:
		return http.StatusConflict
	case operator.Busy:
		return http.StatusTooManyRequests
	case operator.Unable, operator.NotStarted:
	}
	return http.StatusServiceUnavailable
}

func sendAnswer(w http.ResponseWriter, status int, document any) {
	body, err := json.Marshal(document)
	if err != nil {
		status, body = http.StatusInternalServerError, fmt.Appendf(nil, "%q", err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the person may have gone
}
