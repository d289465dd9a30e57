package agent

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/fence"
)

// ErrRefused is wrapped when the host understood a request and could not do it. The connection is still good.
var ErrRefused = errors.New("the host says")

// ErrLater says that a host has seen a later controller of the same election or state folder.
var ErrLater = errors.New("a later controller acts on the host")

// The codes of a refusal.
const (
	codeFailed  = "failed"  // it can't do it
	codeLater   = "later"   // a later controller of the same election or state folder has the lease
	codeForeign = "foreign" // somebody else has it
	codeEnded   = "ended"   // somebody else had it, and has ended: see fromText
)

// refusedError is the answer of a host that refuses a request: JSON for a controller that asks for codes, else the text
// alone.
type refusedError struct {
	Code string `json:"code"`
	Text string `json:"text"` // for people
}

func (e *refusedError) Error() string { return ErrRefused.Error() + ": " + e.Text }

// Is says that it is ErrRefused, and perhaps ErrLater.
func (e *refusedError) Is(target error) bool {
	return target == ErrRefused || target == ErrLater && e.Code == codeLater
}

// coded makes an error of a host one with the JSON of a refusal as its text.
func coded(err error) error {
	text := err.Error()
	r := refusedError{codeFailed, text[:min(len(text), maxRefusalKept)]}
	if held, ok := errors.AsType[*fence.RefusedError](err); ok {
		if r.Code = codeLater; held.Foreign {
			r.Code = codeForeign
		}
	}
	data, broken := json.Marshal(r)
	if broken != nil {
		return err
	}
	return errors.New(string(data))
}

// refusalOf is a refusal at the controller.
func refusalOf(body []byte) error {
	var r refusedError
	if json.Unmarshal(body, &r) != nil || r.Code == "" {
		r = fromText(string(body))
	}
	r.Text = shortened(r.Text, maxRefusalKept)
	return &r
}

// fromText is the refusal of a host of the versions that send texts only.
func fromText(said string) refusedError {
	const (
		refused = "refused: "
		ended   = "and has ended: the host waits for the next leader of its election"
	)
	code := codeFailed
	switch rest, lease := strings.CutPrefix(said, refused); {
	case !lease:
	case strings.HasSuffix(rest, ended):
		code = codeEnded
	case strings.HasPrefix(rest, "replaced by "):
		code = codeLater
	default:
		code = codeForeign
	}
	return refusedError{code, said}
}

// The next steps of a controller that a host refuses: one that was elected, one with a state folder, and one
// whose predecessor has ended.
const (
	electedStep = "leave this controller running: it continues as a standby. If it still claims to lead, " +
		"check its log and `genv remote doctor -H @all`"
	folderStep = "stop this controller: a newer start of the same state folder acts on the host. " +
		"If there is none, because the folder was restored from a backup, remove controller-id from it and " +
		"start once with --take-over"
	endedStep = "start a controller of that election, or start this one once with --take-over: it is needed after " +
		"--leader has changed"
)

// refusedByHost is the error of a refusal. lease is what the controller asked for; nil for none, as of one that was
// elected and isn't any more.
func refusedByHost(err error, lease *fence.LeaseRequest) *remote.Error {
	e := &remote.Error{Class: remote.Replaced, Err: err}
	switch refused, ok := errors.AsType[*refusedError](err); {
	case !ok || refused.Code == codeFailed:
		e.Class = remote.CommandFailed
	case refused.Code == codeEnded:
		e.Next = endedStep
	case refused.Code == codeLater:
		if e.Next = electedStep; lease != nil && !lease.Elected() {
			e.Next = folderStep
		}
	}
	return e
}

// maxRefusalKept is how much is kept of the text with which a host refuses, in bytes: it is shown to the administrator.
const maxRefusalKept = 4096
