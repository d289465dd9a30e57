package controllers

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/shards"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// askShards asks for the elections of shards, if the hosts are divided.
func (e *Election) askShards(ctx context.Context, client *etcd.Client) error {
	members, err := shards.Present(ctx, client, e.Key)
	if err != nil || len(members) == 0 {
		return err
	}
	var all []Shard
	for number := range members[0].Count {
		of, err := electionAt(ctx, client, shards.Key(e.Key, number))
		if err != nil {
			return err
		}
		all = append(all, Shard{Number: number, Election: *of})
	}
	e.divide(members, all)
	return nil
}

// divide makes it an election of shards. Those with which no controller has begun are left out: they
// have no hosts.
func (e *Election) divide(members []shards.Member, all []Shard) {
	e.Count, e.Leads = members[0].Count, true
	e.Controllers = slices.DeleteFunc(e.Controllers, func(c Controller) bool { return c.Role != lost }) // the others are Members
	for i := range members {
		e.Members = append(e.Members, members[i].Name)
	}
	slices.Sort(e.Members)
	for _, s := range all {
		begun := len(s.Controllers) > 0
		for i := range members {
			begun = begun || slices.Contains(members[i].Ready, s.Number)
			if slices.Contains(members[i].Left, s.Number) {
				s.LeftBy = append(s.LeftBy, members[i].Name)
			}
		}
		if begun || len(s.LeftBy) > 0 {
			e.Shards = append(e.Shards, s)
			e.Leads = e.Leads && s.Leads
		}
	}
}

// of is the election that a host is in: that of its shard, if there are any. It is nil if no
// controller has begun with the shard.
func (e *Election) of(host string) *Election {
	if len(e.Members) == 0 {
		return e
	}
	for i := range e.Shards {
		if s := &e.Shards[i]; s.Key == e.keyOf(host) {
			return &s.Election
		}
	}
	return nil
}

// leadsOn reports whether a controller leads that should act on a host.
func (e *Election) leadsOn(host string) bool {
	of := e.of(host)
	return of == nil || of.Leads // a shard with which no controller has begun: that is said of its hosts
}

// wasDivided reports whether the last controller of a host was that of a shard, and now no controller
// of the election runs that could say how many shards there are.
func (e *Election) wasDivided(h *Host) bool {
	if e == nil || len(e.Members) > 0 || e.Leads || e.count(standby) > 0 {
		return false
	}
	for number := range shards.MaxCount {
		if h.Source == fence.ElectionSource(e.cluster, shards.Key(e.Key, number)) {
			return true
		}
	}
	return false
}

// keyOf is the key of the election that a host is in.
func (e *Election) keyOf(host string) string {
	if e.Count == 0 {
		return e.Key
	}
	return shards.Key(e.Key, shards.Of(host, e.Count))
}

func (d *Document) judgeShards(e *Election) {
	gone := map[string][]string{} // shards, by the machine on which their processes were
	for i := range e.Shards {
		s := &e.Shards[i]
		switch {
		case !s.Leads && len(s.LeftBy) > 0:
			d.add(fmt.Sprintf("no controller leads shard %d, so nothing is enforced on its hosts: they refused %s", s.Number, quotedNames(s.LeftBy)),
				"find out which controller acts there: `genv remote controllers -H @all`; end it if it runs, and start a controller of this election once with --take-over")
		case !s.Leads:
			d.add(fmt.Sprintf("no controller leads shard %d, so nothing is enforced on its hosts", s.Number),
				"wait for half a minute: another controller takes it; if none does, look at `journalctl -u genv-controller` on their machines")
		}
		d.judgeLeader(&s.Election, fmt.Sprintf("the leader of shard %d", s.Number))
		for _, c := range s.Controllers {
			if c.Role == lost {
				gone[c.Host] = append(gone[c.Host], strconv.Itoa(s.Number))
			}
		}
	}
	for _, host := range slices.Sorted(maps.Keys(gone)) {
		d.add(fmt.Sprintf("%s has lost its processes of shards %s: they were killed, or can't reach etcd", orItsHost(host), strings.Join(slices.Compact(gone[host]), ", ")),
			"look at `systemctl status genv-controller` on "+orItsHost(host))
	}
	d.judgeLost(e)
	if len(e.Members) == 1 {
		d.add("there is no other controller: if "+text.Quoted(e.Members[0], maxShown)+" fails, nothing is enforced", "start another one with the same --leader and --shards on another jump host")
	}
}

// writeShards prints the controllers of each shard.
func (d *Document) writeShards(w io.Writer, output render.Output) error {
	e := d.Election
	head := fmt.Sprintf("Election %s: %d shards, divided among %s\n", text.Printable(e.Key), e.Count, quotedNames(e.Members))
	if len(e.Shards) == 0 {
		_, err := io.WriteString(w, head+"No controller has begun with a shard yet.\n")
		return err
	}
	if _, err := io.WriteString(w, head+"\n"); err != nil {
		return err
	}
	t := output.Table(append([]render.Column{render.Col("SHARD", 6)}, columns()...)...)
	for i := range e.Shards {
		s := &e.Shards[i]
		if len(s.Controllers) == 0 {
			t.Add(append([]string{strconv.Itoa(s.Number)}, d.line(&Controller{Name: "none"})...)...)
		}
		for j := range s.Controllers {
			t.Add(append([]string{strconv.Itoa(s.Number)}, d.line(&s.Controllers[j])...)...)
		}
	}
	return t.Write(w)
}

func quotedNames(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = text.Quoted(name, maxShown)
	}
	return strings.Join(quoted, ", ")
}
