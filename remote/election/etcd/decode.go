package etcd

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// gatewayError is the gateway's error. In a stream it is one level deeper.
type gatewayError struct {
	Code    int             `json:"code"`
	GRPC    int             `json:"grpc_code"`
	Message string          `json:"message"`
	Error   json.RawMessage `json:"error"`
}

func decode(status int, data []byte, answer any) error {
	if status != http.StatusOK {
		return failure(status, data)
	}
	var streamed struct {
		Header header          `json:"header"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	err := json.Unmarshal(data, &streamed)
	switch {
	case err != nil:
	case len(streamed.Error) > 0:
		var f gatewayError
		if err = json.Unmarshal(streamed.Error, &f); err == nil {
			return f.asError()
		}
	case len(streamed.Result) > 0:
		var first rangeAnswer // all answers have its header
		data = streamed.Result
		err = json.Unmarshal(data, &first)
		streamed.Header = first.Header
	}
	if err == nil && streamed.Header.Cluster == 0 {
		err = errors.New("no cluster id") // else keys would seem to be missing
	}
	if err == nil {
		err = json.Unmarshal(data, answer)
	}
	if err != nil {
		return fmt.Errorf("not an answer of etcd: %w", err)
	}
	return nil
}

func failure(status int, data []byte) error {
	var f gatewayError
	switch err := json.Unmarshal(data, &f); {
	case err == nil:
		return f.asError()
	case status == http.StatusBadRequest && bytes.Contains(data, []byte("CommonName")):
		return ErrCommonName
	case status == http.StatusNotFound:
		return errNoGateway
	}
	return fmt.Errorf("not an answer of etcd: HTTP status %d", status)
}

// ErrCommonName says that etcd's gateway refuses the client's certificate, since its name could be that of a user
// (https://github.com/etcd-io/etcd/pull/10392).
var ErrCommonName = errors.New("etcd has users, and then refuses client certificates with a common name (CN): use " +
	"one without a CN")

// errNoGateway is the answer of the port for other members, and of an etcd without its JSON gateway.
var errNoGateway = errors.New("not an answer of etcd: HTTP status 404")

const maxMessage = 300 // bytes

func (f *gatewayError) asError() *MemberError {
	var text string
	_ = json.Unmarshal(f.Error, &text) // the message; some versions have it only here
	e := &MemberError{Code: cmp.Or(f.GRPC, f.Code), Message: cmp.Or(f.Message, text, "an error without a message")}
	e.Message = e.Message[:min(len(e.Message), maxMessage)]
	return e
}

// explain says why a member doesn't answer, for operators, with the flags of `genv remote enforce` to change.
func (c *Gateway) explain(endpoint string, err error) error {
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err // without the method and the path
	}
	err = text.Late(err, memberTimeout)
	scheme, member, _ := strings.Cut(endpoint, "://")
	if hint := c.hint(scheme == "https", err); hint != "" {
		return fmt.Errorf("%s: %w (%s)", member, err, hint)
	}
	return fmt.Errorf("%s: %w", member, err)
}

func (c *Gateway) hint(secure bool, err error) string {
	operation, ok := errors.AsType[*net.OpError](err)
	rejected := ok && operation.Op == "remote error"
	closed := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
	switch {
	case closed && !secure:
		return "if it speaks TLS, write etcds://"
	case closed, errors.As(err, new(tls.RecordHeaderError)):
		return "if it doesn't speak TLS, write etcd://"
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "--leader-ca is the authority of its certificate"
	case errors.As(err, new(x509.HostnameError)):
		return "the names in --leader have to be in its certificate, as subjectAltName"
	case rejected && c.config.TLS != nil && len(c.config.TLS.Certificates) > 0:
		return "etcd rejected the certificate of --leader-cert: it may have expired, or its authority isn't in " +
			"etcd's trusted-ca-file"
	case rejected:
		return "etcd may require a client certificate: --leader-cert and --leader-key"
	case errors.Is(err, errNoGateway):
		return "2379 is the port for clients, and enable-grpc-gateway has to be on"
	}
	return ""
}

var refusals = map[string]string{
	"user name is empty":            "etcd has users: --leader-login is needed",
	"authentication is not enabled": "etcd has no users: leave out --leader-login",
	"permission denied": "the role of the user needs all keys that begin with the key of --leader, to " +
		"read and to write",
	noSpace:                "etcd's space is used up: compact, defragment and disarm the alarm",
	"request is too large": "larger than etcd's --max-request-bytes",
}
