package policycheck

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

func references(words ...string) (list []policy.Reference) {
	for i, word := range words {
		kind, name, _ := strings.Cut(word, " ")
		r := policy.Reference{Kind: string(kind), Name: name, Place: strictyaml.Place{File: "p", Line: i + 1, Column: 3}}
		if r.Kind == policy.ToLabel {
			r.Name, r.Value, _ = strings.Cut(name, "=")
		}
		list = append(list, r)
	}
	return list
}

func TestCheck(t *testing.T) {
	known := Known{
		Hosts: []remote.Host{
			{Name: "gpu-01", Labels: map[string]string{"gpu": "a100", "rack": "1"}}, {Name: "GPU-02.lab", Labels: map[string]string{"gpu": "h100"}}, {Name: "bare"},
		},
		Groups:   map[string][]string{"all": nil, "rack1": nil},
		Models:   map[snapshot.Hostname]map[string]int{"gpu-01": {"A100-SXM4-80GB": 8}, "gpu-02": {"H100": 4}},
		Accounts: KnownNames{Users: map[string]bool{"alice": true, "1001": true}, Groups: map[string]bool{"students": true}, UnixGroups: map[string]bool{"vision": true}, All: []string{"alice", "robert"}},
	}
	for _, test := range []struct{ reference, want string }{
		{"user alice", ""},
		{"user 1001", ""},
		{"host gpu-01", ""},
		{"host Gpu-01.", ""},
		{"host gpu-02.lab", ""},
		{"host gpu-[01-16]", ""},
		{"label gpu=h100", ""},
		{"label rack=1", ""},
		{"group vision", ""},
		{"model a100*", ""},
		{"host @rack1", ""},

		{"group visoin", `this machine knows no Unix group "visoin"; correct the name, or write "@visoin" for a group under ` + "`groups:`"},
		{"model V100*", `no GPU that the controller has seen is a "V100*"; the models are A100-SXM4-80GB, H100`},

		{"user alicf", `user "alicf" has no account on this machine; did you mean "alice"?`},
		{"user Alice", `user "Alice" has no account on this machine; did you mean "alice"?`},
		{"user zoe", `user "zoe" has no account on this machine; the hosts may know it`},
		{"user students", `"students" is a group of this machine, and not a user; list its users under ` + "`groups:`" + `, and write "@students"`},
		{"host gpu-03", `host "gpu-03" is not in the inventory; did you mean "gpu-01"?`},
		{"host gpu-02", `host "gpu-02" is not in the inventory; did you mean "GPU-02.lab"?`},
		{"host stranger", `host "stranger" is not in the inventory; correct the name, or add it there`},
		{"host node[1-4]", "none of the hosts node[1-4] is in the inventory; correct the name, or add them there"},
		{"host rack1", `"rack1" is a host group of the inventory, and not a host; a policy selects by names or ` + "`labels:`"},
		{"label gqu=a100", `no host of the inventory has the label "gqu"; did you mean "gpu"?`},
		{"label colour=red", `no host of the inventory has the label "colour"; the labels are gpu, rack`},
		{"label gpu=a10", `no host of the inventory has the label gpu=a10; did you mean "a100"?`},
		{"label rack=22", "no host of the inventory has the label rack=22; the values of rack are 1"},
	} {
		t.Run(test.reference, func(t *testing.T) {
			warnings, notChecked := Check(references(test.reference), known)
			require.Empty(t, notChecked)
			if test.want == "" {
				require.Empty(t, warnings)
				return
			}
			require.Len(t, warnings, 1)
			warnings[0].account = ""
			kind, name, _ := strings.Cut(test.reference, " ")
			require.Equal(t, []Warning{{Line: 1, Column: 3, Kind: string(kind), Name: name, Message: test.want}}, warnings)
		})
	}
	warnings, _ := Check(references("user zoe", "host x", "user zoe"), known)
	require.Len(t, warnings, 2, "a name is said once")
	require.Equal(t, 1, warnings[0].Line)
}

func TestWhatCouldNotBeChecked(t *testing.T) {
	all := references("user zoe", "host x", "label a=b")
	warnings, notChecked := Check(all, Known{Accounts: KnownNames{Err: errors.New("no answer")}})
	require.Empty(t, warnings, "unknown is not wrong")
	require.Equal(t, []string{
		"hosts: no inventory was found; name one with -H hosts.yaml", "labels: no inventory was found; name one with -H hosts.yaml", "users: no answer",
	}, notChecked)
	_, notChecked = Check(references("model A100"), Known{ModelsErr: errors.New("permission denied")})
	require.Equal(t, []string{"models: what a controller has seen can't be read: permission denied; run this as its account (sudo -u ACCOUNT)"}, notChecked)
	warnings, notChecked = Check(nil, Known{Accounts: KnownNames{Err: errors.New("no answer")}})
	require.Empty(t, warnings)
	require.Empty(t, notChecked, "there was nothing to check")
}

// Users who have no account here are one line; a group in place of a user, and other names, stay as they are.
func TestUsersWithoutAnAccount(t *testing.T) {
	known := Known{Hosts: []remote.Host{{Name: "a"}}, Accounts: KnownNames{Users: map[string]bool{"alice": true}, Groups: map[string]bool{"staff": true}, All: []string{"alice"}}}
	split := func(words ...string) (string, []Warning) {
		warnings, _ := Check(references(words...), known)
		return SplitAccounts(warnings)
	}
	line, others := split("user zoe", "user alicf", "user bob", "user zoe", "user alice", "user staff", "host x")
	require.Equal(t, `3 users have no account on this machine: alicf (did you mean "alice"?), zoe, bob; the hosts may know them`, line)
	require.Len(t, others, 2)
	require.Equal(t, []string{"staff", "x"}, []string{others[0].Name, others[1].Name})
	line, others = split("user zoe")
	require.Equal(t, "1 user has no account on this machine: zoe; the hosts may know them", line)
	require.Empty(t, others)
	line, others = split("user alice", "host x")
	require.Empty(t, line)
	require.Len(t, others, 1)
}

// exited is the error of a program with this exit status.
func exited(status int) error {
	return exec.Command("sh", "-c", fmt.Sprintf("exit %d", status)).Run()
}

func TestAsk(t *testing.T) {
	var asked []string
	missing := exited(2)
	passwd := map[string]string{"alice": "alice:x:1:1::/:/bin/sh\n", "1000": "robert:x:1000:1::/:/bin/sh\n"}
	getent := func(_ context.Context, database string, keys ...string) ([]byte, error) {
		asked = append(asked, strings.Join(append([]string{database}, keys...), " "))
		var out string
		var err error
		for _, key := range keys {
			line, ok := passwd[key]
			if database != "passwd" || !ok {
				line, err = "", missing
			}
			out += line
		}
		if database == "group" {
			out = "students:x:5:\n"
		}
		if len(keys) == 0 {
			out = "root:x:0:0::/:/bin/sh\nalice:x:1:1::/:/bin/sh\n"
		}
		return []byte(out), err
	}
	a := Ask(t.Context(), references("user alice", "host gpu-01", "user bob", "user alice", "user students", "user 1000"), getent)
	require.Equal(t, KnownNames{
		Users: map[string]bool{"alice": true, "robert": true}, Groups: map[string]bool{"students": true}, UnixGroups: map[string]bool{}, All: []string{"alice", "root"},
	}, a, "1000 is robert's number and no name")
	require.Equal(t, []string{"passwd alice bob students 1000", "group bob students 1000", "passwd"}, asked)

	asked = nil
	require.NoError(t, Ask(t.Context(), references("user alice", "label a=b"), getent).Err)
	require.Equal(t, []string{"passwd alice"}, asked, "nothing more is needed")
	var many []string
	for i := range 1001 {
		many = append(many, fmt.Sprintf("user u%d", i))
	}
	asked = nil
	require.Empty(t, Ask(t.Context(), references(many...), getent).Users)
	require.Len(t, slices.DeleteFunc(asked, func(line string) bool { return !strings.HasPrefix(line, "passwd u") }), 3, "command lines are bounded")
}

// TestNameOfDigits: getent takes it for a uid, and lists the account.
func TestNameOfDigits(t *testing.T) {
	a := Ask(t.Context(), references("user 20231234", "user 20231235"), func(_ context.Context, database string, keys ...string) ([]byte, error) {
		if database == "passwd" && len(keys) == 0 {
			return []byte("20231234:x:1004:1::/:/bin/sh\n"), nil
		}
		return nil, exited(2)
	})
	warnings, _ := Check(references("user 20231234", "user 20231235"), Known{Accounts: a})
	require.Len(t, warnings, 1)
	require.Equal(t, `20231235 (did you mean "20231234"?)`, warnings[0].account)
}

func TestAFailingDirectoryMeansNothing(t *testing.T) {
	for name, test := range map[string]struct {
		getent Getent
		want   string
	}{
		"getent failed": {func(context.Context, string, ...string) ([]byte, error) { return nil, exited(1) }, "getent passwd: exit status 1; the accounts may be in a directory that doesn't answer now"},
		"no getent":     {func(context.Context, string, ...string) ([]byte, error) { return nil, exec.ErrNotFound }, "getent passwd: executable file not found in $PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			a := Ask(t.Context(), references("user zoe"), test.getent)
			require.ErrorContains(t, a.Err, test.want)
			warnings, _ := Check(references("user zoe"), Known{Accounts: a})
			require.Empty(t, warnings)
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	a := Ask(ended, references("user zoe"), func(ctx context.Context, _ string, _ ...string) ([]byte, error) { return nil, ctx.Err() })
	require.ErrorContains(t, a.Err, "getent passwd: no answer within 5s")
}

const passwd = "root:x:0:0::/root:/bin/sh\nbob:x:1003:100::/home/bob:/bin/sh\nbobalt:x:1003:100::/home/bob:/bin/sh\ncarol:x:1004:100::/:/bin/sh\n"

// directory answers as getent does where a directory also takes other names of its accounts.
func directory(t *testing.T) Getent {
	byKey := map[string]string{
		"1003": "bob:x:1003", "carol": "carol:x:1004", "1004": "carol:x:1004", "ann": "ann@corp.example:x:20002", "ann@corp.example": "ann@corp.example:x:20002",
		"20002": "ann@corp.example:x:20002", "rob": "rob:x:1003", "solo": "solo:x:20003", "20003": "solo:x:20003",
	}
	return func(_ context.Context, database string, keys ...string) ([]byte, error) {
		require.Equal(t, "passwd", database)
		var out strings.Builder
		missing := false
		for _, key := range keys {
			line, known := byKey[key]
			missing = missing || !known
			if known {
				out.WriteString(line + ":100::/home:/bin/sh\n")
			}
		}
		if missing {
			return []byte(out.String()), exec.CommandContext(t.Context(), "sh", "-c", "exit 2").Run()
		}
		return []byte(out.String()), nil
	}
}

func TestSameUsers(t *testing.T) {
	for _, test := range []struct {
		names []string
		want  policy.Aliases
	}{
		{nil, policy.Aliases{"bobalt": "bob"}},
		{[]string{"carol", "solo", "stranger", "1004"}, policy.Aliases{"bobalt": "bob"}},
		{[]string{"ann", "stranger"}, policy.Aliases{"bobalt": "bob", "ann": "ann@corp.example"}},
		{[]string{"ann@corp.example", "rob"}, policy.Aliases{"bobalt": "bob", "rob": "bob"}},
	} {
		got, err := sameUsers(t.Context(), test.names, []byte(passwd), directory(t))
		require.NoError(t, err)
		require.Equal(t, test.want, got, test.names)
	}
	_, err := sameUsers(t.Context(), []string{"x"}, nil, func(context.Context, string, ...string) ([]byte, error) { return nil, errors.New("no server") })
	require.ErrorContains(t, err, "no server")
	none, err := sameUsers(t.Context(), []string{"x"}, nil, func(context.Context, string, ...string) ([]byte, error) { return nil, exec.ErrNotFound })
	require.NoError(t, err)
	require.Empty(t, none)
}
