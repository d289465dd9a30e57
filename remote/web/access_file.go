package web

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// maxCost is the highest cost of a password's hash: a second.
const maxCost = 14

// maxAccessFile bounds each file that is read, in bytes.
const maxAccessFile = 4 << 20

// accessRules are what a file says.
type accessRules struct {
	files   []string          // that were read
	tls     *tls.Config       // nil for none
	hashes  map[string][]byte // by user
	slowest []byte            // the hash that takes longest, for unknown users
}

var clientAuthTypes = map[string]tls.ClientAuthType{
	"NoClientCert": tls.NoClientCert, "RequestClientCert": tls.RequestClientCert,
	"RequireClientCert": tls.RequireAnyClientCert, "RequireAnyClientCert": tls.RequireAnyClientCert,
	"VerifyClientCertIfGiven": tls.VerifyClientCertIfGiven, "RequireAndVerifyClientCert": tls.RequireAndVerifyClientCert,
}

// readAccess reads a file and those that it names. If one of those can't be used, it returns their names with the error.
func readAccess(path string) (*accessRules, error) {
	data, err := folder.ReadRegular(path, maxAccessFile)
	if err != nil {
		return nil, err
	}
	r, pair := &accessRules{files: []string{path}}, keyPair{dir: filepath.Dir(path)}
	doc := strictyaml.Parse(path, data)
	doc.Root().Map(strictyaml.Keys{"tls_server_config": pair.parse, "basic_auth_users": r.parseUsers})
	if failed := (*strictyaml.ParseError)(nil); errors.As(doc.Err(), &failed) {
		failed.Source = "" // the line may have the hash of a password
		return nil, failed
	}
	if pair.node == nil {
		return r, nil
	}
	r.files = append(r.files, pair.cert, pair.key)
	if pair.clientCA != "" {
		r.files = append(r.files, pair.clientCA)
	}
	if r.tls, err = pair.config(); err != nil {
		return r, fmt.Errorf("%s: %w", pair.node.Place(), err)
	}
	return r, nil
}

func (r *accessRules) parseUsers(n *strictyaml.Node) {
	r.hashes = make(map[string][]byte)
	slowest := 0
	n.Each(func(key, value *strictyaml.Node) {
		user, hash := key.Scalar(), value.Text()
		if hash == "" {
			return // it has its error
		}
		cost, err := bcrypt.Cost([]byte(hash))
		switch {
		case user == "" || strings.Contains(user, ":"):
			key.Failf("a user's name must not be empty or contain a colon")
		case err != nil || len(hash) != 60:
			value.Failf("not a bcrypt hash, as `htpasswd -nB USER` prints it after the colon")
		case cost > maxCost:
			value.Failf("a cost of %d is too slow: use at most %d, as with `htpasswd -nB -C %d USER`", cost, maxCost, maxCost)
		}
		if r.hashes[user] = []byte(hash); cost >= slowest {
			slowest, r.slowest = cost, r.hashes[user]
		}
	})
	if len(r.hashes) == 0 {
		n.Failf("there are no users; add one as `NAME: HASH`, or remove basic_auth_users")
	}
}

// keyPair is a tls_server_config.
type keyPair struct {
	dir  string // in which relative paths are
	node *strictyaml.Node

	cert, key, clientCA string
	clientAuth          tls.ClientAuthType
	minVersion          uint16
}

func (k *keyPair) parse(n *strictyaml.Node) {
	k.node, k.minVersion = n, tls.VersionTLS12
	file := func(path *string) func(*strictyaml.Node) {
		return func(n *strictyaml.Node) {
			if *path = n.Text(); *path != "" && !filepath.IsAbs(*path) {
				*path = filepath.Join(k.dir, *path)
			}
		}
	}
	n.Map(strictyaml.Keys{
		"cert_file": file(&k.cert), "key_file": file(&k.key), "client_ca_file": file(&k.clientCA),
		"client_auth_type": func(n *strictyaml.Node) {
			k.clientAuth = clientAuthTypes[n.OneOf("NoClientCert", "RequestClientCert", "RequireClientCert", "RequireAnyClientCert",
				"VerifyClientCertIfGiven", "RequireAndVerifyClientCert")]
		},
		"min_version": func(n *strictyaml.Node) {
			if n.OneOf("TLS12", "TLS13") == "TLS13" {
				k.minVersion = tls.VersionTLS13
			}
		},
	})
	verifies := k.clientAuth >= tls.VerifyClientCertIfGiven
	switch {
	case k.cert == "" || k.key == "":
		n.Failf("write both cert_file and key_file")
	case verifies && k.clientCA == "":
		n.Failf("client_auth_type needs client_ca_file, which has the certificates of those who may sign")
	case !verifies && k.clientCA != "":
		n.Failf("client_ca_file is not used; add `client_auth_type: RequireAndVerifyClientCert`")
	}
}

// config reads the files. It doesn't offer HTTP/2, as the program may be built without that, and
// no resumption, which could outlive the certificates of clients.
func (k *keyPair) config() (*tls.Config, error) {
	pair, err := k.read()
	if err != nil {
		return nil, fmt.Errorf("%s with %s: %w", k.cert, k.key, err)
	}
	config := &tls.Config{
		MinVersion: k.minVersion, NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true,
		Certificates: []tls.Certificate{pair}, ClientAuth: k.clientAuth,
	}
	if k.clientCA == "" {
		return config, nil
	}
	data, err := folder.ReadRegular(k.clientCA, maxAccessFile)
	if err != nil {
		return nil, err
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s holds no certificate", k.clientCA)
	}
	return config, nil
}

func (k *keyPair) read() (pair tls.Certificate, err error) {
	cert, err := folder.ReadRegular(k.cert, maxAccessFile)
	if err != nil {
		return pair, err
	}
	key, err := folder.ReadRegular(k.key, maxAccessFile)
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(cert, key)
}
