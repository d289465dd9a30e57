package operator_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/seed-3119e985/genv/enforce/exemption"
	"github.com/seed-3119e985/genv/remote/operator"
)

// Whatever is asked for: what is accepted exempts somebody in particular, and for a time.
func FuzzAction(f *testing.F) {
	for _, seed := range []string{
		`{"schema":"genv.live.action/1","action":"exempt","user":"bob","hours":4,"reason":"r"}`,
		`{"schema":"genv.live.action/1","action":"exempt","host":"a","device":-1,"hours":1e-9,"reason":"\u202e"}`,
		`{"schema":"genv.live.action/1","action":"exempt","user":" ","rule":"idle","hours":720.0000001,"reason":"r"}`,
		`{"schema":"genv.live.action/1","action":"unexempt","user":"bob"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var a operator.Action
		if json.Unmarshal(data, &a) != nil || a.Check() != nil {
			return
		}
		s, _, err := operator.State{}.After(operator.Person{UID: 1}, &a, noon)
		if err != nil {
			return
		}
		for i := range s.Exemptions {
			e := &s.Exemptions[i]
			if err := e.Check(); err != nil || e.User == "" && e.Host == "" || e.Until.After(noon.Add(exemption.MaxDuration)) {
				t.Fatal(e, err)
			}
		}
		file, err := s.Encode(noon)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := operator.Decode(file, noon.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	})
}
