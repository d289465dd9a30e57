package leadership

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// Config is what the flags say. Without a Key there is no election.
type Config struct {
	Key  string
	Etcd etcd.Config

	files tlsFiles
}

// tlsFiles are files with PEM; empty if they aren't given.
type tlsFiles struct{ ca, cert, key string }

// loginVariable has what the file of --leader-login has.
const loginVariable = "GENV_LEADER_LOGIN"

// Flags are those about a leader. Few set more than the first, so that help leaves them to config.yaml.
func Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "leader", Category: command.Site + command.Shared + command.Loop, Usage: "act only while this controller leads among those with the same `URL`, such as etcd://a:2379,b:2379,c:2379/genv/lab or, with TLS, etcds://…"},
		&cli.StringFlag{Name: "leader-ca", Category: command.Site + command.Shared + command.Loop, Hidden: true, DefaultText: "the system's", Usage: "the authorities of etcd's certificates (`FILE`, PEM)"},
		&cli.StringFlag{Name: "leader-cert", Category: command.Site + command.Shared + command.Loop, Hidden: true, Usage: "the certificate by which etcd knows this controller (`FILE`, PEM)"},
		&cli.StringFlag{Name: "leader-key", Category: command.Site + command.Shared + command.Loop, Hidden: true, Usage: "the key of the certificate (`FILE`, PEM)"},
		&cli.StringFlag{Name: "leader-login", Category: command.Site + command.Shared + command.Loop, Hidden: true, DefaultText: "$" + loginVariable, Usage: "a private `FILE` with USER:PASSWORD for etcd"},
	}
}

// ReadConfig reads Flags. acts says that the command runs in a loop and is no dry run: others
// don't take part.
func ReadConfig(c *cli.Context, getenv func(string) string, acts bool) (Config, error) {
	if !command.IsGiven(c, "leader") {
		for _, name := range []string{"leader-ca", "leader-cert", "leader-key", "leader-login"} {
			if command.IsGiven(c, name) {
				return Config{}, command.UsageError("--%s needs --leader", name)
			}
		}
		return Config{}, nil
	}
	if !acts {
		return Config{}, command.UsageError("--leader needs a loop that acts: write an --interval of more than 0, and no --dry-run")
	}
	address, err := etcd.ParseURL(c.String("leader"))
	if err != nil {
		return Config{}, command.UsageError("--leader: %w", err)
	}
	files := tlsFiles{c.String("leader-ca"), c.String("leader-cert"), c.String("leader-key")}
	config := Config{Key: address.Key, Etcd: etcd.Config{Endpoints: address.Endpoints}, files: files}
	if err := config.readLogin(c.String("leader-login"), getenv(loginVariable)); err != nil {
		return config, err
	}
	config.Etcd.TLS, err = files.read(address.TLS)
	return config, err
}

// readLogin reads the user and the password: from a file, or else from the environment.
func (config *Config) readLogin(file, variable string) error {
	from, login := "$"+loginVariable, variable
	if file != "" {
		from = "--leader-login " + file
		var err error
		if login, err = mail.ReadPassword(file); err != nil {
			return command.UsageError("--leader-login: %w", err)
		}
	}
	if login == "" {
		return nil
	}
	var ok bool
	if config.Etcd.User, config.Etcd.Password, ok = strings.Cut(login, ":"); !ok || config.Etcd.User == "" || config.Etcd.Password == "" {
		return command.UsageError("%s: write USER:PASSWORD into it", from)
	}
	return nil
}

// read reads the files; nil without TLS.
func (f tlsFiles) read(wanted bool) (*tls.Config, error) {
	if !wanted {
		if f.ca+f.cert+f.key != "" {
			return nil, command.UsageError("--leader-ca, --leader-cert and --leader-key are for etcds://")
		}
		return nil, nil //nolint:nilnil // there is no TLS
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, command.UsageError("--leader-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, command.UsageError("--leader-ca: %s has no certificate (PEM)", f.ca)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, command.UsageError("--leader-cert and --leader-key need each other")
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, command.UsageError("--leader-cert, --leader-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
