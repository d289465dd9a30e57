package enforcement

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// Leader has the flags about a leader. Without a Key there is no election.
type Leader struct {
	Key  string
	Etcd etcd.Config

	url, login    string
	ca, cert, key string // PEM files; empty for none
}

// loginVariable has the content of the file of --leader-login.
const loginVariable = "GENV_LEADER_LOGIN"

// Flags returns the flags; usage is that of --leader.
func (l *Leader) Flags(usage string, keys command.InConfig) []cli.Flag {
	return []cli.Flag{
		command.String(&l.url, "leader", usage).Config(keys),
		command.String(&l.ca, "leader-ca", "the authorities of etcd's certificates (`FILE`, PEM)").
			Config(keys).DefaultText("the system's").Hide(),
		command.String(&l.cert, "leader-cert", "the certificate by which etcd knows this controller "+
			"(`FILE`, PEM)").Config(keys).Hide(),
		command.String(&l.key, "leader-key", "the key of the certificate (`FILE`, PEM)").Config(keys).Hide(),
		command.String(&l.login, "leader-login", "a private `FILE` with USER:PASSWORD for etcd").
			Config(keys).DefaultText("$" + loginVariable).Hide(),
	}
}

// LeaderUsage is the text of --leader for a command that acts.
const LeaderUsage = "act only while this controller leads among those with the same `URL`, " +
	"such as etcd://a:2379,b:2379,c:2379/genv/lab or, with TLS, etcds://…"

// Off reports whether no election is asked about.
func (l *Leader) Off() bool { return l.url == "off" }

// Read checks the flags and reads the files. acts means that the command is a loop that acts; no other takes part.
func (l *Leader) Read(getenv func(string) string, acts bool) error {
	l.Key, l.Etcd = "", etcd.Config{}
	if l.url == "" {
		for _, needs := range [][2]string{
			{"leader-ca", l.ca}, {"leader-cert", l.cert}, {"leader-key", l.key}, {"leader-login", l.login},
		} {
			if needs[1] != "" {
				return command.WrongFlag(needs[0], " needs --leader")
			}
		}
		return nil
	}
	if !acts {
		return command.WrongFlag("leader",
			" needs a loop that acts: write an --interval of more than 0, and no --dry-run")
	}
	address, err := etcd.ParseURL(l.url)
	if err != nil {
		return command.WrongFlag("leader", ": %w", err)
	}
	l.Key, l.Etcd.Endpoints = address.Key, address.Endpoints
	if err := l.readLogin(getenv(loginVariable)); err != nil {
		return err
	}
	l.Etcd.TLS, err = l.readTLS(address.TLS)
	return err
}

func (l *Leader) readLogin(variable string) error {
	from, login := "$"+loginVariable, variable
	if l.login != "" {
		from = "--leader-login " + l.login
		var err error
		if login, err = folder.ReadPassword(l.login); err != nil {
			return command.WrongFlag("leader-login", ": %w", err)
		}
	}
	if login == "" {
		return nil
	}
	user, password, _ := strings.Cut(login, ":")
	if user == "" || password == "" {
		return command.UsageError("%s: write USER:PASSWORD into it", from)
	}
	l.Etcd.User, l.Etcd.Password = user, password
	return nil
}

func (l *Leader) readTLS(wanted bool) (_ *tls.Config, err error) {
	switch {
	case !wanted && l.ca+l.cert+l.key != "":
		return nil, command.WrongFlag("leader-ca", ", --leader-cert and --leader-key are for etcds://")
	case !wanted:
		return nil, nil //nolint:nilnil // there is no TLS
	case (l.cert == "") != (l.key == ""):
		return nil, command.WrongFlag("leader-cert", " and --leader-key need each other")
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if l.ca != "" {
		if settings.RootCAs, err = folder.ReadAuthorities(l.ca); err != nil {
			return nil, command.WrongFlag("leader-ca", ": %w", err)
		}
	}
	if l.cert != "" {
		pair, err := tls.LoadX509KeyPair(l.cert, l.key)
		if err != nil {
			return nil, command.WrongFlag("leader-cert", ", --leader-key: %w", err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	return settings, nil
}

// WarnOfClearText names the members of etcd that are asked without TLS and aren't local by their name.
func (l *Leader) WarnOfClearText(log zerolog.Logger) {
	var members []string
	for _, endpoint := range l.Etcd.Endpoints {
		at, err := url.Parse(endpoint)
		if err != nil || at.Scheme != "http" {
			continue
		}
		ip := net.ParseIP(at.Hostname())
		if !strings.EqualFold(at.Hostname(), "localhost") && (ip == nil || !ip.IsLoopback()) {
			members = append(members, at.Host)
		}
	}
	if len(members) == 0 {
		return
	}
	readable := "the memory of the leader"
	if l.Etcd.User != "" {
		readable = "the password of " + l.Etcd.User + " and " + readable
	}
	log.Warn().Str("members", strings.Join(members, " ")).
		Msg("the connection to etcd is not encrypted: anyone on the network can read " + readable +
			", and anyone who can modify the traffic decides which controller acts. Set up TLS in etcd and write " +
			"--leader etcds://…")
}

// CheckMembers asks each member of etcd once, before the election. A silent member is a warning. Members of different
// clusters are an error: each cluster would elect a leader.
func (l *Leader) CheckMembers(ctx context.Context, log zerolog.Logger) error {
	if l.Key == "" {
		return nil
	}
	client := etcd.New(l.Etcd)
	defer client.Close()
	members := client.Members(ctx, l.Key)
	var silent []error
	clusters := map[uint64][]string{}
	for _, m := range members {
		switch {
		case m.Err == nil:
			clusters[m.Cluster] = append(clusters[m.Cluster], m.Address)
		case !etcd.Refused(m.Err): // the election reports refusals
			silent = append(silent, m.Err)
		}
	}
	if len(silent) > 0 && ctx.Err() == nil {
		log.Warn().Errs("members", silent).Msgf("%d of %d members of etcd don't answer. Look at `%s`", len(silent),
			len(members), l.Health())
	}
	if len(clusters) < 2 {
		return nil
	}
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(clusters)) { // as `etcdctl endpoint status` prints them
		parts = append(parts, fmt.Sprintf("%s of %x", strings.Join(clusters[id], " and "), id))
	}
	return command.WrongFlag("leader", ": these are members of different clusters, each of which would have a "+
		"leader of its own: %s; name those of one", strings.Join(parts, ", "))
}

// Health is the command that shows the members' health. It may ask for a password.
func (l *Leader) Health() string {
	args := []string{"etcdctl", "--endpoints", strings.Join(l.Etcd.Endpoints, ",")}
	for _, flag := range [][2]string{
		{"--cacert", l.ca}, {"--cert", l.cert}, {"--key", l.key}, {"--user", l.Etcd.User},
	} {
		if flag[1] != "" {
			args = append(args, flag[0], flag[1])
		}
	}
	return remote.Command{Args: append(args, "endpoint", "health")}.ShellLine()
}
