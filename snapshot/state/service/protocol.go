package service

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
)

// Version of the protocol. A service refuses other versions.
const Version = 1

const SocketName = "host.sock" // in root's run folder

// Limits of a message (a line of JSON) in bytes.
const (
	MaxRequest = 128 << 10
	maxAnswer  = 32 << 20
)

// Request has exactly one field set besides Version.
type Request struct {
	Version int             `json:"version"`
	Change  *change.Change  `json:"change,omitempty"`
	Look    string          `json:"look,omitempty"` // see Backend
	Status  bool            `json:"status,omitempty"`
	Token   *snapshot.EnvID `json:"token,omitempty"`  // see Client.Token
	Redeem  string          `json:"redeem,omitempty"` // a token; only for root
	Allow   *Allowance      `json:"allow,omitempty"`  // only for root

	Allowance bool                  `json:"allowance,omitempty"` // of the calling user
	Reserve   *snapshot.Reservation `json:"reserve,omitempty"`   // for the caller; root may name another uid
	Cancel    string                `json:"cancel,omitempty"`    // ID of the reservation to end
	Wait      *WaitRequest          `json:"wait,omitempty"`      // answers with Waiting are followed by others
	Withdraw  string                `json:"withdraw,omitempty"`  // ID of a wait that gives up its offer
}

// Answer holds the result, or an error.
type Answer struct {
	Version     int                   `json:"version"`
	Result      *change.Result        `json:"result,omitempty"`
	Document    json.RawMessage       `json:"document,omitempty"`
	Status      *Status               `json:"status,omitempty"`
	Token       string                `json:"token,omitempty"`
	Holder      *grant.ProvedUser     `json:"holder,omitempty"`      // of a redeemed token
	Allowance   *Allowance            `json:"allowance,omitempty"`   // nil if unknown
	Reservation *snapshot.Reservation `json:"reservation,omitempty"` // after Reserve or Cancel
	Freed       time.Time             `json:"freed,omitzero"`        // see Client.Reserve
	Waiting     *QueuePlace           `json:"waiting,omitempty"`
	Error       json.RawMessage       `json:"error,omitempty"` // by change.EncodeError
	Busy        bool                  `json:"busy,omitempty"`  // refused for too many requests: nothing was done
}

// Status is what the service says about itself.
type Status struct {
	PID         int       `json:"pid"`
	Genv        string    `json:"genv"`
	Since       time.Time `json:"since"`
	Connections int       `json:"connections"`
	Served      uint64    `json:"served"`  // answered requests
	Refused     uint64    `json:"refused"` // requests refused for exceeding limits
}

// changes says whether a request acts for the caller's account. Root-only requests are checked elsewhere.
func (r *Request) changes() bool {
	return r.Change != nil || r.Wait != nil || r.Reserve != nil || r.Cancel != "" || r.Withdraw != ""
}

var errTooLong = errors.New("it is too long")

func readLine(r io.Reader, limit int) ([]byte, error) {
	buffered := bufio.NewReaderSize(io.LimitReader(r, int64(limit)+1), 4096)
	line, err := buffered.ReadBytes('\n')
	switch {
	case err == nil:
		return bytes.TrimSuffix(line, []byte("\n")), nil
	case len(line) > limit:
		return nil, errTooLong
	case errors.Is(err, io.EOF) && len(line) > 0:
		return nil, io.ErrUnexpectedEOF
	}
	return nil, err
}

// decodeRequest reads a request. Its errors wrap state.ErrRequest.
func decodeRequest(line []byte) (r Request, err error) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); errors.Is(err, state.ErrRequest) { // from the change
		return r, err
	} else if err != nil {
		return r, state.Refuse("not a request of genv")
	}
	asked := 0
	for field, value := range reflect.ValueOf(r).Fields() {
		if field.Name != "Version" && !value.IsZero() {
			asked++
		}
	}
	switch {
	case r.Version != Version:
		return r, state.Refuse("version %d of the protocol, and this service has %d: use the same version of genv "+
			"as the service", r.Version, Version)
	case asked != 1:
		return r, state.Refuse("a request asks for one thing")
	}
	return r, nil
}

func writeLine(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}
