package etcd

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// refusal is the error of the gateway. The error of a stream is one level below.
type refusal struct {
	Code    int             `json:"code"`
	GRPC    int             `json:"grpc_code"`
	Message string          `json:"message"`
	Error   json.RawMessage `json:"error"`
}

// decode reads the answer of a member.
func decode(status int, data []byte, answer any) error {
	var streamed struct {
		Header header          `json:"header"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if status == http.StatusOK {
		if err := json.Unmarshal(data, &streamed); err != nil {
			return fmt.Errorf("not an answer of etcd: %w", err)
		}
		if len(streamed.Error) == 0 && len(streamed.Result) > 0 {
			var first rangeAnswer // for its header, which all answers have
			data = streamed.Result
			_ = json.Unmarshal(data, &first) // the error comes below
			streamed.Header = first.Header
		}
		switch {
		case len(streamed.Error) > 0:
			var r refusal
			if err := json.Unmarshal(streamed.Error, &r); err != nil {
				return fmt.Errorf("not an answer of etcd: %w", err)
			}
			return r.asError()
		case streamed.Header.Cluster == 0:
			return errors.New("not an answer of etcd: no cluster id") // or a key would seem not to be there
		}
		if err := json.Unmarshal(data, answer); err != nil {
			return fmt.Errorf("not an answer of etcd: %w", err)
		}
		return nil
	}
	var r refusal
	switch err := json.Unmarshal(data, &r); {
	case err == nil:
		return r.asError()
	case status == http.StatusBadRequest && bytes.Contains(data, []byte("CommonName")):
		return ErrCommonName
	case status == http.StatusNotFound:
		return errNoGateway
	}
	return fmt.Errorf("not an answer of etcd: HTTP status %d", status)
}

// ErrCommonName says that etcd's gateway refuses the certificate of this client: a certificate's
// name could be that of a user (https://github.com/etcd-io/etcd/pull/10392).
var ErrCommonName = errors.New("etcd has users, and then refuses client certificates with a common name (CN): use one without a CN")

// errNoGateway is the answer of the port for other members, and of an etcd without its JSON gateway.
var errNoGateway = errors.New("not an answer of etcd: HTTP status 404")

// maxMessage is how much of a message is kept, in bytes.
const maxMessage = 300

// asError is what a member refused, and why.
func (r *refusal) asError() *Error {
	var text string
	_ = json.Unmarshal(r.Error, &text) // the same as the message, in some versions alone
	e := &Error{Code: cmp.Or(r.GRPC, r.Code), Message: cmp.Or(r.Message, text, "an error without a message")}
	e.Message = e.Message[:min(len(e.Message), maxMessage)]
	return e
}
