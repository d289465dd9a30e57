package fleet

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/cmd/genv/configfile"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/remote"
	remotedoctor "github.com/seed-3119e985/genv/remote/doctor"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/snapshot/doctor/bundle"
)

// addFleet adds the hosts, how they are reached, and the policy file to a bundle.
func addFleet(file *bundle.File, hosts []remote.Host, found []remotedoctor.Host, policy string) error {
	var listed []listedHost
	for _, h := range hosts {
		listed = append(listed, listedHost{h.Name, h.Address, h.Port, h.User, h.GenvPath, !h.NoSudo, slices.Sorted(maps.Keys(h.Labels))})
	}
	var ways []reached
	for i := range found {
		if found[i].Way != nil {
			ways = append(ways, reachedBy(found[i].Host, found[i].Way.Settings))
		}
	}
	err := errors.Join(file.AddJSON("hosts.json", listed), file.AddJSON("ssh.json", ways))
	if err != nil || policy == "" || policy == configfile.NoPolicy {
		return err
	}
	data, err := enforcement.ReadPolicyFile(policy)
	if err != nil {
		return file.AddText("policy.yaml", "left out: "+err.Error()+"\n")
	}
	return file.AddPolicy("policy.yaml", data)
}

// listedHost is a host of the inventory. Values of labels can be anything.
type listedHost struct {
	Name    string   `json:"name"`
	Address string   `json:"address,omitempty"`
	Port    int      `json:"port,omitempty"`
	User    string   `json:"user,omitempty"`
	Genv    string   `json:"genv,omitempty"`
	Sudo    bool     `json:"sudo"`
	Labels  []string `json:"labels,omitempty"`
}

// reached is what ssh_config says about a host, as far as genv uses it: names of files, and
// never what is in them. Of commands there is the program alone.
type reached struct {
	Host           string   `json:"host"`
	HostName       string   `json:"hostname"`
	Port           int      `json:"port"`
	User           string   `json:"user"`
	ProxyJump      []string `json:"proxyjump,omitempty"`
	Proxy          string   `json:"proxy_program,omitempty"`
	Identities     []string `json:"identity_files"`
	Certificates   []string `json:"certificate_files,omitempty"`
	IdentitiesOnly bool     `json:"identities_only"`
	Agent          bool     `json:"agent"`
	KnownHosts     []string `json:"known_hosts_files"`
	KnownBy        string   `json:"known_hosts_program,omitempty"`
	Alias          string   `json:"alias,omitempty"`
	Strict         string   `json:"strict"`
	Kex            []string `json:"kex"`
	Ciphers        []string `json:"ciphers"`
	MACs           []string `json:"macs"`
	HostAlgorithms []string `json:"host_algorithms"`
	Timeout        string   `json:"connect_timeout,omitempty"`
	Alive          string   `json:"alive_interval,omitempty"`
	Family         string   `json:"family,omitempty"`
	BindAddress    string   `json:"bind_address,omitempty"`
	BindInterface  string   `json:"bind_interface,omitempty"`
}

func reachedBy(host string, s config.HostConfig) reached {
	r := reached{
		Host: host, HostName: s.HostName, Port: s.Port, User: s.User, ProxyJump: s.ProxyJump, Proxy: programIn(s.ProxyCommand),
		Identities: s.IdentityFiles, Certificates: s.CertificateFiles, IdentitiesOnly: s.IdentitiesOnly, Agent: s.IdentityAgent != "",
		KnownHosts: slices.Concat(s.UserKnownHosts, s.GlobalKnownHosts), Alias: s.HostKeyAlias, Strict: string(s.HostKeyChecking),
		Kex: s.KexAlgorithms, Ciphers: s.Ciphers, MACs: s.MACs, HostAlgorithms: s.HostKeyAlgorithms,
		Family: s.AddressFamily, BindAddress: s.BindAddress, BindInterface: s.BindInterface,
	}
	if len(s.KnownHostsCommand) > 0 {
		r.KnownBy = s.KnownHostsCommand[0]
	}
	if s.ConnectTimeout > 0 {
		r.Timeout = s.ConnectTimeout.String()
	}
	if s.ServerAliveInterval > 0 {
		r.Alive = s.ServerAliveInterval.String()
	}
	return r
}

// programIn is the program of a command line, without its arguments, if it begins with one
// and not with a variable.
func programIn(line string) string {
	program, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	if strings.ContainsAny(program, `='"$`) {
		return bundle.Removed
	}
	return program
}
