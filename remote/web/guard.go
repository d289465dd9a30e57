package web

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
)

// contentPolicy is what browsers may do with the pages. They contain no scripts and styles.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// userHeaders are where oauth2-proxy and others say who the user is.
var userHeaders = []string{"X-Forwarded-User", "X-Auth-Request-User"}

type userKey struct{}

// userOf is who asks; empty if that isn't known.
func userOf(r *http.Request) snapshot.Username {
	user, _ := r.Context().Value(userKey{}).(snapshot.Username)
	return user
}

func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", contentPolicy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		if !AnswersTo(r.Host, s.options.Hosts) {
			s.refuse(w, r, http.StatusMisdirectedRequest, "This server doesn't answer to this name. The controller's "+
				"administrator can add it with --web-host.")
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			header.Set("Allow", "GET, HEAD")
			s.refuse(w, r, http.StatusMethodNotAllowed, "This page only shows: GET and HEAD.")
			return
		}
		switch user, status := s.authenticate(r); status {
		case http.StatusOK:
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
		case http.StatusBadRequest:
			s.refuse(w, r, status, "The proxy's headers name more than one user.")
		default:
			s.refuse(w, r, status, demand(header, status))
		}
	})
}

// AnswersTo reports whether a Host header has a name of loopback, or one of others. Otherwise another site could have
// its visitors' browsers read what is served on loopback (DNS rebinding).
func AnswersTo(host string, others []string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	if address, err := netip.ParseAddr(name); err == nil && address.Unmap().IsLoopback() {
		return true
	}
	return name == "localhost" || slices.ContainsFunc(others, func(h string) bool {
		return strings.EqualFold(strings.Trim(h, "[]"), name)
	})
}

// authenticate is who asks, if that is known, and whether the request may go on.
func (s *server) authenticate(r *http.Request) (snapshot.Username, int) {
	switch {
	case s.options.Access != nil:
		return s.options.Access.login(r)
	case s.options.Proxied:
		return headerUser(r.Header)
	}
	return "", http.StatusOK
}

// knowsUsers reports whether authenticate says who asks.
func (s *server) knowsUsers() bool {
	return s.options.Proxied || s.options.Access != nil && s.options.Access.Demands().Passwords
}

// headerUser is the user that a proxy names. Two names mean that one of them may come from the browser.
func headerUser(header http.Header) (snapshot.Username, int) {
	var user string
	for _, name := range userHeaders {
		for _, value := range header.Values(name) {
			if value == "" {
				continue
			}
			if user != "" && value != user || len(value) > maxUserName {
				return "", http.StatusBadRequest
			}
			user = value
		}
	}
	return snapshot.Username(user), http.StatusOK
}
