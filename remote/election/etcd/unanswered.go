package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
)

// unanswered is why none of the members that were asked answered, one error for each.
type unanswered []error

func (u unanswered) Error() string {
	members := make([]string, len(u))
	for i, err := range u {
		members[i] = err.Error()
	}
	return "etcd doesn't answer: " + strings.Join(members, "; ")
}

func (u unanswered) Unwrap() []error { return u }

// explain says why a member doesn't answer, for operators: an error of TLS alone tells few what to
// change. The words between parentheses name flags of `genv remote enforce`.
func (c *Client) explain(endpoint string, err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err // without the method and the path
	}
	scheme, member, _ := strings.Cut(endpoint, "://")
	if hint := c.hint(scheme == "https", err); hint != "" {
		return fmt.Errorf("%s: %w (%s)", member, err, hint)
	}
	return fmt.Errorf("%s: %w", member, err)
}

// hint is what an operator can do about an error of a member that is asked with TLS, or without.
func (c *Client) hint(secure bool, err error) string {
	var (
		noTLS     tls.RecordHeaderError
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		operation *net.OpError
	)
	closed := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
	switch {
	case closed && !secure:
		return "if it speaks TLS, write etcds://"
	case closed, errors.As(err, &noTLS):
		return "if it doesn't speak TLS, write etcd://"
	case errors.As(err, &authority):
		return "--leader-ca is the authority of its certificate"
	case errors.As(err, &name):
		return "the names in --leader have to be in its certificate, as subjectAltName"
	case errors.As(err, &operation) && operation.Op == "remote error" && c.config.TLS != nil && len(c.config.TLS.Certificates) > 0:
		return "etcd rejected the certificate of --leader-cert: it may have expired, or its authority isn't in etcd's trusted-ca-file"
	case errors.As(err, &operation) && operation.Op == "remote error":
		return "etcd may require a client certificate: --leader-cert and --leader-key"
	case errors.Is(err, errNoGateway):
		return "2379 is the port for clients, and enable-grpc-gateway has to be on"
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("it took longer than %s", memberTimeout)
	}
	return ""
}

// refusals are what etcd says of users and of its limits, and what to do about it.
var refusals = map[string]string{
	"user name is empty":            "etcd has users: --leader-login is needed",
	"authentication is not enabled": "etcd has no users: leave out --leader-login",
	"permission denied":             "the role of the user needs all keys that begin with the key of --leader, to read and to write",
	"database space exceeded":       "etcd's space is used up: compact, defragment and disarm the alarm",
	"request is too large":          "larger than etcd's --max-request-bytes",
}
