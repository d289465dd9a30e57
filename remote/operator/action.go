package operator

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// ActionKind says what is requested. The texts appear in JSON.
type ActionKind string

const (
	Exempt   ActionKind = "exempt"   // keeps rules away from a user, a host or a GPU for some hours
	Unexempt ActionKind = "unexempt" // ends that early
	Hold     ActionKind = "hold"     // stops what rules do
	Release  ActionKind = "release"  // ends a hold
	Explain  ActionKind = "explain"  // says what the caps count for a user, as seen from a host, and what would go first
)

// ActionSchema is the schema of an Action.
const ActionSchema = "genv.live.action/1"

// Action is a person's request, as JSON. Fields that a kind doesn't use stay empty.
type Action struct {
	Schema string     `json:"schema"` // ActionSchema
	Kind   ActionKind `json:"action"`

	Host   snapshot.Hostname     `json:"host,omitempty"`
	Device *snapshot.DeviceIndex `json:"device,omitempty"` // to exempt
	UUID   snapshot.GPUUUID      `json:"uuid,omitempty"`   // no other GPU is exempted
	User   snapshot.Username     `json:"user,omitempty"`   // who is exempted
	Rule   enforce.Rule          `json:"rule,omitempty"`   // what an exemption is limited to
	Hours  float64               `json:"hours,omitempty"`  // of an exemption, at most 720
	From   time.Time             `json:"from,omitzero"`    // when an exemption begins; missing for at once
	// Reason is why: at most 200 printable characters. Only unexempt and release need none.
	Reason string `json:"reason,omitempty"`
}

// AnswerSchema is the schema of an Answer.
const AnswerSchema = "genv.live.answer/1"

// Answer is a controller's answer to an accepted action.
type Answer struct {
	Schema string `json:"schema"` // AnswerSchema
	Done   bool   `json:"done"`   // always true
	Text   string `json:"text"`   // for people; one line, for explain one per cap
}

// Code says why an action is refused. The texts appear in JSON.
type Code string

const (
	Invalid    Code = "invalid"     // the action can't be understood
	Forbidden  Code = "forbidden"   // this person may not ask for it
	Changed    Code = "changed"     // what the person saw is no longer there
	Unable     Code = "unable"      // it can't be done now: dry run, the host failed, no record
	Busy       Code = "busy"        // too many actions are waiting
	NotStarted Code = "not-started" // the controller ended or the person left before it began
)

// Refusal is the error of an action that had no effect, as JSON shows it.
type Refusal struct {
	Schema   string `json:"schema"` // AnswerSchema
	Code     Code   `json:"code"`
	Text     string `json:"error"` // for people; one line
	NextStep string `json:"next_step"`
}

func (r *Refusal) Error() string { return r.Text }

// WithNextStep appends a Refusal's next step to an error, as a sentence.
func WithNextStep(err error) error {
	refusal, ok := errors.AsType[*Refusal](err)
	switch {
	case !ok || refusal.NextStep == "":
		return err
	case strings.HasSuffix(err.Error(), "?"): // such as "did you mean"
		return fmt.Errorf("%w %s", err, refusal.NextStep)
	}
	return fmt.Errorf("%w. %s", err, refusal.NextStep)
}

// Author is who asks, according to the kernel, not the client.
type Author struct {
	UID  snapshot.UID
	Name snapshot.Username // of UID; may be empty
	// Login is who logged in (loginuid(5)), if that is another user, as after sudo; else nil.
	Login     *snapshot.UID
	LoginName snapshot.Username
}

// String names the person, such as "alice (uid 1000), as root".
func (p Author) String() string {
	if p.Login == nil {
		return named(p.Name, p.UID)
	}
	as := fmt.Sprintf("uid %d", p.UID)
	if p.Name != "" {
		as = text.Shown(string(p.Name))
	}
	return fmt.Sprintf("%s, as %s", named(p.LoginName, *p.Login), as)
}

func named(name snapshot.Username, uid snapshot.UID) string {
	if name == "" {
		return fmt.Sprintf("uid %d", uid)
	}
	return fmt.Sprintf("%s (uid %d)", text.Shown(string(name)), uid)
}

// Refuse returns a Refusal.
func Refuse(code Code, nextStep, format string, args ...any) *Refusal {
	return &Refusal{Schema: AnswerSchema, Code: code, Text: fmt.Sprintf(format, args...), NextStep: nextStep}
}

// RefuseInvalid returns a Refusal of an invalid request.
func RefuseInvalid(format string, args ...any) *Refusal {
	return Refuse(Invalid, "Correct the request; docs/json.md describes it.", format, args...)
}

// fieldsOf has the fields of each kind, besides the reason.
var fieldsOf = map[ActionKind]string{
	Exempt: "host device uuid user rule hours from", Unexempt: "host device uuid user rule", Hold: "", Release: "",
	Explain: "host user",
}

// Check returns a *Refusal (Invalid) for missing fields, or those that the kind doesn't use.
func (a *Action) Check() error {
	used, known := fieldsOf[a.Kind]
	e, err := a.Exemption(), error(nil)
	switch {
	case a.Schema != ActionSchema:
		return RefuseInvalid("schema %s: this controller knows %s", text.Shown(a.Schema), ActionSchema)
	case !known:
		return RefuseInvalid("unknown action %s", text.Shown(string(a.Kind)))
	case a.Reason != "":
		err = policy.CheckReason(a.Reason)
	case a.Kind == Exempt || a.Kind == Hold:
		return RefuseInvalid("%s needs a reason", a.Kind)
	}
	if err == nil && (a.Kind == Exempt || a.Kind == Unexempt) {
		err = e.Who.Check()
	}
	if err == nil && a.Kind == Exempt {
		_, err = policy.ExemptionHours(a.Hours)
	}
	if err != nil {
		return RefuseInvalid("%v", err)
	}
	set := map[string]bool{
		"host": a.Host != "", "device": a.Device != nil, "uuid": a.UUID != "", "user": a.User != "",
		"rule": a.Rule != "", "hours": a.Hours != 0, "from": !a.From.IsZero(),
	}
	maps.DeleteFunc(set, func(name string, is bool) bool { return !is || slices.Contains(strings.Fields(used), name) })
	if len(set) == 0 {
		return nil
	}
	needless := slices.Sorted(maps.Keys(set))
	return RefuseInvalid("%s has no use for %s", a.Kind, strings.Join(needless, ", "))
}

// Exemption is what Exempt and Unexempt are about, without author and times.
func (a *Action) Exemption() policy.Exemption {
	return policy.Exemption{
		Who:    policy.Who{User: a.User, Host: a.Host, Device: a.Device, UUID: a.UUID, Rule: a.Rule},
		Reason: a.Reason, From: a.From,
	}
}
