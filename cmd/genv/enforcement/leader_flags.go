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
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// LeaderConfig is what the flags about a leader say. Without a Key there is no election.
type LeaderConfig struct {
	Key  string
	Etcd etcd.Config

	ca, cert, key string // files with PEM; empty if they aren't given
}

// loginVariable has what the file of --leader-login has.
const loginVariable = "GENV_LEADER_LOGIN"

// LeaderFlags is what the flags about a leader say. Few set more than the first, so that help leaves them to
// config.yaml.
type LeaderFlags struct {
	url, login string
	config     LeaderConfig
}

// Flags are the flags; usage is that of --leader.
func (o *LeaderFlags) Flags(usage string, keys command.Keys) []cli.Flag {
	return []cli.Flag{
		command.String(&o.url, "leader", usage).Config(keys),
		command.String(&o.config.ca, "leader-ca", "the authorities of etcd's certificates (`FILE`, PEM)").
			Config(keys).DefaultText("the system's").Hide(),
		command.String(&o.config.cert, "leader-cert", "the certificate by which etcd knows this controller "+
			"(`FILE`, PEM)").Config(keys).Hide(),
		command.String(&o.config.key, "leader-key", "the key of the certificate (`FILE`, PEM)").Config(keys).Hide(),
		command.String(&o.login, "leader-login", "a private `FILE` with USER:PASSWORD for etcd").
			Config(keys).DefaultText("$" + loginVariable).Hide(),
	}
}

// LeaderUsage is the text of --leader for a command that acts.
const LeaderUsage = "act only while this controller leads among those with the same `URL`, " +
	"such as etcd://a:2379,b:2379,c:2379/genv/lab or, with TLS, etcds://…"

// Off says that no election is asked about.
func (o *LeaderFlags) Off() bool { return o.url == "off" }

// Read reads what the flags name. acts says that the command runs in a loop and isn't a dry run: others don't take
// part.
func (o *LeaderFlags) Read(getenv func(string) string, acts bool) (LeaderConfig, error) {
	if o.url == "" {
		for _, needs := range [][2]string{
			{"leader-ca", o.config.ca},
			{"leader-cert", o.config.cert},
			{"leader-key", o.config.key},
			{"leader-login", o.login},
		} {
			if needs[1] != "" {
				return LeaderConfig{}, command.WrongFlag(needs[0], " needs --leader")
			}
		}
		return LeaderConfig{}, nil
	}
	if !acts {
		return LeaderConfig{}, command.WrongFlag("leader",
			" needs a loop that acts: write an --interval of more than 0, and no --dry-run")
	}
	address, err := etcd.ParseURL(o.url)
	if err != nil {
		return LeaderConfig{}, command.WrongFlag("leader", ": %w", err)
	}
	config := o.config
	config.Key, config.Etcd.Endpoints = address.Key, address.Endpoints
	if err := config.readLogin(o.login, getenv(loginVariable)); err != nil {
		return config, err
	}
	config.Etcd.TLS, err = config.readTLS(address.TLS)
	return config, err
}

// readLogin reads the user and the password: from a file, or else from the environment.
func (config *LeaderConfig) readLogin(file, variable string) error {
	from, login := "$"+loginVariable, variable
	if file != "" {
		from = "--leader-login " + file
		var err error
		if login, err = mail.ReadPassword(file); err != nil {
			return command.WrongFlag("leader-login", ": %w", err)
		}
	}
	if login == "" {
		return nil
	}
	var ok bool
	if config.Etcd.User, config.Etcd.Password, ok = strings.Cut(login, ":"); !ok || config.Etcd.User == "" ||
		config.Etcd.Password == "" {
		return command.UsageError("%s: write USER:PASSWORD into it", from)
	}
	return nil
}

// readTLS reads the files; nil without TLS.
func (config *LeaderConfig) readTLS(wanted bool) (*tls.Config, error) {
	if !wanted {
		if config.ca+config.cert+config.key != "" {
			return nil, command.WrongFlag("leader-ca", ", --leader-cert and --leader-key are for etcds://")
		}
		return nil, nil //nolint:nilnil // there is no TLS
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if config.ca != "" {
		var err error
		if settings.RootCAs, err = mail.Authorities(config.ca); err != nil {
			return nil, command.WrongFlag("leader-ca", ": %w", err)
		}
	}
	if (config.cert == "") != (config.key == "") {
		return nil, command.WrongFlag("leader-cert", " and --leader-key need each other")
	}
	if config.cert != "" {
		pair, err := tls.LoadX509KeyPair(config.cert, config.key)
		if err != nil {
			return nil, command.WrongFlag("leader-cert", ", --leader-key: %w", err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	return settings, nil
}

// WarnOfClearText says that what goes to etcd and back goes over a network without TLS.
func (config LeaderConfig) WarnOfClearText(log zerolog.Logger) {
	members := config.inClearText()
	if len(members) == 0 {
		return
	}
	readable := "the memory of the leader"
	if config.Etcd.User != "" {
		readable = "the password of " + config.Etcd.User + " and " + readable
	}
	log.Warn().Str("members", strings.Join(members, " ")).
		Msg("the connection to etcd is not encrypted: anyone on the network can read " + readable +
			", and anyone who can modify the traffic decides which controller acts. Set up TLS in etcd and write " +
			"--leader etcds://…")
}

// inClearText are the members that are asked without TLS and are not on this machine, as far as their names say.
func (config LeaderConfig) inClearText() (members []string) {
	for _, endpoint := range config.Etcd.Endpoints {
		at, err := url.Parse(endpoint)
		if err != nil || at.Scheme != "http" || isLoopback(at.Hostname()) {
			continue
		}
		members = append(members, at.Host)
	}
	return members
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// CheckMembers asks each member of etcd once, before the election: one that doesn't answer is a warning, as it may be
// started later, and members of different clusters are an error, since each cluster would have a leader of its own.
func (config LeaderConfig) CheckMembers(ctx context.Context, log zerolog.Logger) error {
	if config.Key == "" {
		return nil
	}
	client := etcd.New(config.Etcd)
	defer client.Close()
	members := client.Members(ctx, config.Key)
	var silent []error
	clusters := map[uint64][]string{}
	for _, m := range members {
		switch {
		case m.Err == nil:
			clusters[m.Cluster] = append(clusters[m.Cluster], m.Address)
		case !etcd.Refused(m.Err): // what it refuses, the election says
			silent = append(silent, m.Err)
		}
	}
	if len(silent) > 0 && ctx.Err() == nil {
		log.Warn().Errs("members", silent).Msgf("%d of %d members of etcd don't answer. Look at `%s`", len(silent),
			len(members), config.Health())
	}
	if len(clusters) > 1 {
		return command.WrongFlag("leader", ": these are members of different clusters, each of which would have a "+
			"leader of its own: %s; name those of one", shown(clusters))
	}
	return nil
}

// shown lists members by cluster, with the ids as `etcdctl endpoint status` has them.
func shown(clusters map[uint64][]string) string {
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(clusters)) {
		parts = append(parts, fmt.Sprintf("%s of %x", strings.Join(clusters[id], " and "), id))
	}
	return strings.Join(parts, ", ")
}

// Health is the command by which an operator sees how the members are. It asks for the password of
// the user, if there is one.
func (config LeaderConfig) Health() string {
	args := []string{"etcdctl", "--endpoints", strings.Join(config.Etcd.Endpoints, ",")}
	for _, flag := range [][2]string{
		{"--cacert", config.ca},
		{"--cert", config.cert},
		{"--key", config.key},
		{"--user", config.Etcd.User},
	} {
		if flag[1] != "" {
			args = append(args, flag[0], flag[1])
		}
	}
	return remote.Command{Args: append(args, "endpoint", "health")}.ShellLine()
}
