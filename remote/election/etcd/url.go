package etcd

import (
	"errors"
	"fmt"
	"net"
	"path"
	"strconv"
	"strings"
)

// Address is what an URL such as etcd://a:2379,b:2379/genv/lab says.
type Address struct {
	Endpoints []string // http://a:2379, or https:// for etcds
	Key       string   // /genv/lab
	TLS       bool
}

// defaultPort is that of etcd's clients.
const defaultPort = "2379"

// maxKey bounds a key, in bytes: hosts refuse a source of more than 512.
const maxKey = 256

// ParseURL reads an URL: etcd:// or etcds:// for TLS, members separated by commas, and a key.
func ParseURL(url string) (Address, error) {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok || scheme != "etcd" && scheme != "etcds" {
		return Address{}, errors.New("write etcd://HOST:2379/genv/lab, or etcds:// for TLS")
	}
	members, key, _ := strings.Cut(rest, "/")
	a := Address{Key: "/" + key, TLS: scheme == "etcds"}
	switch {
	case strings.Contains(rest, "@"): // a password may have a slash
		return Address{}, errors.New("a user and a password don't belong there, since every user of this machine sees them")
	case strings.ContainsAny(key, "?#%\x00 \n") || len(key) > maxKey:
		return Address{}, fmt.Errorf("a key has at most %d bytes, and none of ?#%% and space", maxKey)
	case path.Clean(a.Key) == "/":
		return Address{}, errors.New("a key such as /genv/lab has to follow the members")
	case path.Clean(a.Key) != a.Key:
		return Address{}, fmt.Errorf("write the key as %s", path.Clean(a.Key))
	}
	for _, m := range strings.Split(members, ",") {
		endpoint, err := endpointOf(m, a.TLS)
		if err != nil {
			return Address{}, err
		}
		a.Endpoints = append(a.Endpoints, endpoint)
	}
	return a, nil
}

func endpointOf(member string, tls bool) (string, error) {
	host, port, err := net.SplitHostPort(member)
	if err != nil && !strings.Contains(member, ":") {
		host, port, err = member, defaultPort, nil
	}
	if number, errPort := strconv.ParseUint(port, 10, 16); err != nil || host == "" || strings.ContainsAny(host, "/?#% ") || errPort != nil || number == 0 {
		return "", fmt.Errorf("%q is not an address and a port, such as etcd-1.lab:2379 or [fd00::1]:2379", member)
	}
	scheme := "http://"
	if tls {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, port), nil
}
