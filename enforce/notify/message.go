// Package notify writes the messages to users, for terminals and mail: what is wrong, what follows, and what to do.
//
//	for _, m := range notify.Messages(finding, notify.NewRecipients(cluster), now) {
//		fmt.Println(m.UID, m.Shown(), m.Advice)
//	}
//
// A Box keeps notices until their users have read them, and some time longer for reading again:
//
//	box := notify.Box{Root: "/var/lib/genv"}
//	err := box.Keep(1001, text, terminals, now)                // root's genv
//	err = notify.Inbox{Box: box, …}.Show(false, now, print)   // the user's shell
//
// The package sends nothing, and has no clock.
package notify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// UserMessage is what one user on one host is told about a finding, or by an operator.
type UserMessage struct {
	Host        snapshot.Hostname
	UID         snapshot.UID
	User        snapshot.Username // the name of the account on that host; empty if it is not known
	ID          string            // of the finding
	Rule        enforce.Rule      // empty for what an operator wrote
	Line        string            // what is wrong
	Command     string            // the command line of the process, quoted
	Follows     string            // what will be done, as in "process 4242 will be ended"
	Pending     bool              // it is not done yet
	Due         time.Time         // the earliest time for it, if that is known
	AwaitsHosts bool              // it is due once all hosts answer
	Since       time.Time         // when it was first seen
	At          time.Time         // when this was written
	Advice      string            // what to do: mostly the same for all findings of a rule

	Decisions []string // the ids of what is done, or of the warning: `genv why ID` explains them
	Record    []string // what is recorded of the first action, line by line
	ForOthers bool     // who wait, or have reserved
	// Information: nothing happens to the user on this host. It isn't a warning, which the user got elsewhere.
	Information bool
}

// TestText is in each test of notices.
const TestText = "This is a test of genv's notices. Nothing is wrong, and nothing will be done."

const maxCommand = 200 // characters of a command line that a message shows

// QuotedCommand quotes a command line, or it could look like a part of the message.
func QuotedCommand(line string) string {
	if line == "" {
		return ""
	}
	return text.Quoted(strings.Join(strings.Fields(line), " "), maxCommand)
}

// Shown is the message for a terminal, without the advice.
func (m *UserMessage) Shown() string {
	left, first := m.Due.Sub(m.At), min(len(m.Follows), 1)
	outcome := strings.ToUpper(m.Follows[:first]) + m.Follows[first:]
	switch {
	case !m.Pending:
	case m.AwaitsHosts:
		outcome = "Unless this changes, once all hosts answer, " + m.Follows
	case left <= 0:
		outcome = "Unless this changes soon, " + m.Follows
	default:
		outcome = fmt.Sprintf("Unless this changes, in %s %s", text.ShortDuration(left), m.Follows)
	}
	return m.Line + "\n" + outcome + "."
}

// Outcome says in a mail what happens, and when.
func (m *UserMessage) Outcome() string {
	switch {
	case m.Follows == "":
		return ""
	case !m.Pending:
		return fmt.Sprintf("At %s: %s.", Clock(m.At), m.Follows)
	case m.AwaitsHosts:
		return fmt.Sprintf("Unless this changes, once all hosts answer: %s.", m.Follows)
	case m.Due.After(m.At):
		return fmt.Sprintf("Unless this changes, at %s: %s.", Clock(m.Due), m.Follows)
	}
	return fmt.Sprintf("Unless this changes soon: %s.", m.Follows)
}

// Decided says who decided, and whom to ask; contact may be empty.
func Decided(contact string) string {
	return "This is by the policy of your site. Questions: " + cmp.Or(contact, "your administrator")
}

// Clock formats a time with its zone.
func Clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04 MST") }

// Messages are those of a finding, one for each affected user with a uid and host, in the cluster's order.
func Messages(f *enforce.Finding, recipients *Recipients, now time.Time) []UserMessage {
	var list []UserMessage
	if f.Reservation != nil && f.UID != nil {
		m := recipients.message(f, recipient{f.Host, *f.UID}, f.Reservation.Follows, now)
		m.Line = "Your " + f.Reservation.Text + "."
		return []UserMessage{m}
	}
	of, order := stakesOf(f, recipients,
		func(ref enforce.ProcessRef) (recipient, bool) {
			p := recipients.on(ref.Host).processes[ref.PID]
			if p == nil {
				return recipient{}, false
			}
			_, uid := p.Reported()
			return recipient{ref.Host, *uid}, true
		},
		func(ref enforce.DeviceRef) (recipient, bool) {
			uid, known := recipients.on(ref.Host).envs[ref.EID]
			return recipient{ref.Host, uid}, known
		})
	for _, t := range order {
		list = append(list, recipients.message(f, t, of[t].follows(f.Pending), now))
	}
	return list
}

const maxNamedHosts = 3 // in a message

// Elsewhere are messages, for Information, on other hosts with something that counts for a cap. account maps a host's
// name of a user to the account.
func Elsewhere(f *enforce.Finding, recipients *Recipients, account func(snapshot.Username) snapshot.Username,
	now time.Time,
) []UserMessage {
	of, follows := onHosts(f, recipients)
	if len(of) == 0 {
		return nil
	}
	var list []UserMessage
	for _, host := range f.CountedOn {
		names := recipients.on(host).names
		for _, uid := range slices.Sorted(maps.Keys(names)) {
			if of[host] == nil && account(names[uid]) == f.User {
				n := recipients.message(f, recipient{host, uid}, follows, now)
				n.Information = true
				list = append(list, n)
			}
		}
	}
	return list
}

func onHosts(f *enforce.Finding, recipients *Recipients) (of map[snapshot.Hostname]*stake, follows string) {
	of, hosts := stakesOf(f, recipients,
		func(ref enforce.ProcessRef) (snapshot.Hostname, bool) { return ref.Host, true },
		func(ref enforce.DeviceRef) (snapshot.Hostname, bool) { return ref.Host, true })
	var parts []string
	for _, host := range hosts[:min(len(hosts), maxNamedHosts)] {
		parts = append(parts, fmt.Sprintf("%s on %s", of[host].follows(f.Pending), text.OneLine(string(host))))
	}
	if len(hosts) > len(parts) {
		parts = append(parts, "and more on other hosts")
	}
	return of, strings.Join(parts, "; ")
}

// Summary is a finding for others than its user: it names the hosts on which something happens.
func Summary(f *enforce.Finding, now time.Time) UserMessage {
	_, follows := onHosts(f, nil)
	m := messageOf(f, follows, now)
	m.Host, m.User = f.Affects(), f.User
	return m
}

func (o *Recipients) message(f *enforce.Finding, t recipient, follows string, now time.Time) UserMessage {
	m := messageOf(f, follows, now)
	m.Host, m.UID, m.User = t.host, t.uid, o.on(t.host).names[t.uid]
	m.Line += claim(f, o) + called(f, o)
	m.Advice = f.Advice(o.Environment)
	return m
}

func messageOf(f *enforce.Finding, follows string, now time.Time) UserMessage {
	isCap := f.Pending && f.Count != nil
	if isCap && len(f.Detach) > 0 {
		follows += "; what runs there then ends, too"
	}
	if isCap && !f.Cap.OfHours() { // it chooses again when it is due; of GPU hours all goes
		follows = fmt.Sprintf("what is too much will be taken back, idle GPUs first (as things are now, %s)", follows)
	}
	return UserMessage{
		ID: f.ID, Rule: f.Rule, Line: lineOf(f),
		Command: QuotedCommand(cmp.Or(f.Command, f.PrivateCommand)), Follows: follows, Pending: f.Pending, Due: f.Due,
		// Other blocked findings wait for orders on a host to end.
		AwaitsHosts: f.BlockedBy != "" && f.HostsMissing > 0, Since: f.Since, At: now,
		ForOthers: f.Rule == enforce.RuleReservations || f.Cap != nil && f.Cap.WaitsFor != "",
	}
}

// lineOf is what is wrong. 1.4.3's lines about caps are for people who know them.
func lineOf(f *enforce.Finding) string {
	where := ""
	if f.Count != nil && f.Count.Hosts > 1 {
		where = fmt.Sprintf(" on %d hosts", f.Count.Hosts)
	}
	user, counted := text.Shown(string(f.User)), ""
	switch {
	case f.Rule == enforce.RuleMaxMemoryPerUser && f.Memory != nil:
		return fmt.Sprintf("User %s uses %s of GPU memory%s, and may use %s.", user,
			text.GiB(f.Memory.UsedBytes), where, text.GiB(f.Memory.CapacityBytes))
	case f.Rule == enforce.RuleMaxDevicesPerUser && f.Count != nil:
		counted = text.Plural(f.Count.Used, "GPU")
	case f.Rule == enforce.RuleMaxEnvsPerUser && f.Count != nil:
		counted = text.Plural(f.Count.Used, "environment")
	default:
		return f.Line() + "."
	}
	return fmt.Sprintf("User %s has %s%s, and may have %d.", user, counted, where, f.Count.Limit)
}

func called(f *enforce.Finding, o *Recipients) string {
	env := o.Environment(f.Host, f.EID)
	if env != nil && env.Config.Name != "" && f.Rule != enforce.RuleNonEnvProcesses {
		return fmt.Sprintf(" Environment %s is %s.", text.Shown(string(f.EID)), text.Shown(env.Config.Name))
	}
	return ""
}

func claim(f *enforce.Finding, recipients *Recipients) string {
	if f.Rule != enforce.RuleNonEnvProcesses || f.EID == "" {
		return ""
	}
	why := "isn't registered here"
	if recipients.Environment(f.Host, f.EID) != nil {
		why = "is registered for another user"
	}
	return fmt.Sprintf(" It claims environment %s, which %s.", text.Shown(string(f.EID)), why)
}

type stake struct {
	pids    []string
	devices []snapshot.DeviceIndex
}

// stakesOf divides what a finding ends, by the keys that process and device return.
func stakesOf[K comparable](f *enforce.Finding, recipients *Recipients,
	process func(enforce.ProcessRef) (K, bool), device func(enforce.DeviceRef) (K, bool),
) (of map[K]*stake, order []K) {
	of = make(map[K]*stake)
	add := func(key K, known bool) *stake {
		if !known {
			return &stake{}
		}
		if of[key] == nil {
			of[key] = &stake{}
			order = append(order, key)
		}
		return of[key]
	}
	for _, ref := range f.Terminate {
		s := add(process(ref))
		s.pids = append(s.pids, recipients.named(f, ref))
	}
	for _, ref := range f.Detach {
		if s := add(device(ref)); !slices.Contains(s.devices, ref.Index) {
			s.devices = append(s.devices, ref.Index)
		}
	}
	return of, order
}

func (o *Recipients) named(f *enforce.Finding, ref enforce.ProcessRef) string {
	if o != nil && ref.PID != f.PID {
		if p := o.on(ref.Host).processes[ref.PID]; p != nil && p.CommandOrName() != "" {
			return fmt.Sprintf("%d (%s)", ref.PID, text.ShownCommand(p.CommandOrName()))
		}
	}
	return fmt.Sprint(ref.PID)
}

func (s *stake) follows(pending bool) string {
	forms := []string{
		"process %s gets SIGTERM now", "processes %s get SIGTERM now",
		"GPU %s is being detached", "GPUs %s are being detached",
	}
	if pending {
		forms = []string{
			"process %s will be ended", "processes %s will be ended",
			"GPU %s will be detached", "GPUs %s will be detached",
		}
	}
	var parts []string
	if n := len(s.pids); n > 0 {
		parts = append(parts, fmt.Sprintf(forms[min(n, 2)-1], strings.Join(s.pids, ", ")))
	}
	if n := len(s.devices); n > 0 {
		parts = append(parts, fmt.Sprintf(forms[min(n, 2)+1], text.JoinIndices(s.devices)))
	}
	return strings.Join(parts, " and ")
}

// Recipients finds the users of the processes and environments of a cluster.
type Recipients struct {
	hosts map[snapshot.Hostname]*snapshot.Host
	found map[snapshot.Hostname]*recipientsOfHost
}

// recipientsOfHost are the accounts that the kernel doesn't contradict.
type recipientsOfHost struct {
	processes map[snapshot.PID]*snapshot.Process
	envs      map[snapshot.EnvID]snapshot.UID
	names     map[snapshot.UID]snapshot.Username
}

// NewRecipients requires that the cluster doesn't change.
func NewRecipients(cluster snapshot.Cluster) *Recipients {
	o := &Recipients{
		hosts: make(map[snapshot.Hostname]*snapshot.Host, len(cluster.Hosts)),
		found: make(map[snapshot.Hostname]*recipientsOfHost),
	}
	for i := range cluster.Hosts {
		o.hosts[cluster.Hosts[i].Name] = &cluster.Hosts[i]
	}
	return o
}

// The first name of an account counts: processes have the host's own names.
func (o *Recipients) on(host snapshot.Hostname) *recipientsOfHost {
	if found := o.found[host]; found != nil {
		return found
	}
	found := &recipientsOfHost{
		map[snapshot.PID]*snapshot.Process{}, map[snapshot.EnvID]snapshot.UID{}, map[snapshot.UID]snapshot.Username{},
	}
	o.found[host] = found
	h := o.hosts[host]
	if h == nil || h.Snapshot == nil {
		return found
	}
	for i := range h.Snapshot.Processes {
		p := &h.Snapshot.Processes[i]
		if user, uid := p.Reported(); uid != nil {
			found.processes[p.PID], found.names[*uid] = p, cmp.Or(found.names[*uid], user)
		}
	}
	for i := range h.Snapshot.Environments {
		e := &h.Snapshot.Environments[i]
		if user, uid := e.Account(); uid != nil {
			found.envs[e.EID], found.names[*uid] = *uid, cmp.Or(found.names[*uid], user)
		}
	}
	return found
}

type recipient struct {
	host snapshot.Hostname
	uid  snapshot.UID
}

// Environment returns the environment of any user with this ID on a host; nil if unknown.
func (o *Recipients) Environment(host snapshot.Hostname, eid snapshot.EnvID) *snapshot.Environment {
	if h := o.hosts[host]; h != nil && h.Snapshot != nil {
		return h.Snapshot.Environment(eid)
	}
	return nil
}
