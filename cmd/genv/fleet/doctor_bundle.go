package fleet

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/checkup"
	"github.com/seed-3119e985/genv/cmd/genv/configfile"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/remote"
	remotedoctor "github.com/seed-3119e985/genv/remote/doctor"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// addFleet adds the hosts, how they are reached, and the policy file to a bundle.
func addFleet(b *checkup.Bundle, hosts []remote.Host, found []remotedoctor.Host, policy string) {
	listed, ways := []map[string]any{}, []map[string]any{}
	for _, h := range hosts {
		listed = append(listed, withoutEmpty(map[string]any{
			"name": h.Name, "address": h.Address, "port": h.Port, "user": h.User, "genv": h.GenvPath, "sudo": !h.NoSudo,
			"labels": slices.Sorted(maps.Keys(h.Labels)), // their values can be anything
		}))
	}
	for i := range found {
		if found[i].Way != nil {
			ways = append(ways, reachedBy(found[i].Host, &found[i].Way.Settings))
		}
	}
	b.AddJSON("hosts.json", listed)
	b.AddJSON("ssh.json", ways)
	if policy != "" && policy != configfile.NoPolicy {
		data, err := enforcement.ReadPolicyFile(policy)
		b.AddPolicy("policy.yaml", data, err)
	}
}

// withoutEmpty leaves out what is empty or 0.
func withoutEmpty(facts map[string]any) map[string]any {
	maps.DeleteFunc(facts, func(_ string, value any) bool {
		list, isList := value.([]string)
		return isList && len(list) == 0 || !isList && (value == "" || value == 0)
	})
	return facts
}

// reachedBy is what ssh_config says about a host, as far as genv uses it: names of files, and
// never what is in them. Of commands there is the program alone.
func reachedBy(host string, s *config.HostConfig) map[string]any {
	return withoutEmpty(map[string]any{
		"host": host, "hostname": s.HostName, "port": s.Port, "user": s.User, "proxyjump": s.ProxyJump, "proxy_program": programIn(s.ProxyCommand),
		"identity_files": s.IdentityFiles, "certificate_files": s.CertificateFiles, "identities_only": s.IdentitiesOnly, "agent": s.IdentityAgent != "",
		"known_hosts_files": slices.Concat(s.UserKnownHosts, s.GlobalKnownHosts), "known_hosts_program": s.KnownHostsCommand[:min(len(s.KnownHostsCommand), 1)],
		"alias": s.HostKeyAlias, "strict": string(s.HostKeyChecking), "kex": s.KexAlgorithms, "ciphers": s.Ciphers, "macs": s.MACs,
		"host_algorithms": s.HostKeyAlgorithms, "connect_timeout": orEmpty(s.ConnectTimeout), "alive_interval": orEmpty(s.ServerAliveInterval),
		"family": s.AddressFamily, "bind_address": s.BindAddress, "bind_interface": s.BindInterface,
	})
}

// orEmpty is a time in words; empty for none.
func orEmpty(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return d.String()
}

// programIn is the program of a command line, without its arguments, if it begins with one
// and not with a variable.
func programIn(line string) string {
	program, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	if strings.ContainsAny(program, `='"$`) {
		return checkup.Removed
	}
	return program
}
