package order_test

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// recordedStdin is what the 1.4.3 controller wrote to `genv usage execute`.
const recordedStdin = `{"terminate": {"processes": [{"pid": 28167, "used_gpu_memory": [{"index": 5, "gpu_memory": "640mi"}], "eid": null}]}, "detach": {}}`

func TestRecordedStdinIsRead(t *testing.T) {
	got := proctest.Try(order.Decode143([]byte(recordedStdin))).OK(t)
	require.Equal(t, order.Order{Terminate: []order.Termination{{Process: snapshot.Process{
		PID: 28167, Usage: []snapshot.DeviceUsage{{Index: 5, Memory: snapshot.MustMemory("640mi")}},
	}}}}, got)
}

// recordedOrders are all that 1.4.3 would have sent in the recorded cases.
func recordedOrders(t testing.TB) []string {
	f := proctest.Try(os.Open("../rules/testdata/cases.jsonl")).OK(t)
	defer f.Close()
	recorded := []string{recordedStdin}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c struct{ Reports map[string]json.RawMessage }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &c))
		for _, r := range c.Reports {
			recorded = append(recorded, string(r))
		}
	}
	require.NoError(t, lines.Err())
	return recorded
}

func TestRecordedOrdersSurviveARoundTrip(t *testing.T) {
	orders := recordedOrders(t)
	require.Greater(t, len(orders), 250)
	for _, want := range orders {
		o := proctest.Try(order.Decode143([]byte(want))).OK(t)
		got := proctest.Try(order.Encode143(o)).OK(t)
		require.JSONEq(t, inOrder(t, want), inOrder(t, string(got)))
		require.NotContains(t, string(got), "\n", "an order is one line")

		require.Equal(t, o, proctest.Try(order.Decode143(got)).OK(t))
	}
}

// inOrder sorts the environments of a device, whose order means nothing.
func inOrder(t *testing.T, encoded string) string {
	o := proctest.Try(order.Decode143([]byte(encoded))).OK(t)
	var doc map[string]any
	require.NoError(t, json.Unmarshal([]byte(encoded), &doc))
	ordered := map[string][]any{}
	for _, d := range o.Detach {
		for _, e := range doc["detach"].(map[string]any)[d.Device.String()].(map[string]any)["envs"].([]any) {
			if e.(map[string]any)["eid"] == string(d.Environment.EID) {
				ordered[d.Device.String()] = append(ordered[d.Device.String()], e)
			}
		}
	}
	doc["detach"] = ordered
	out := proctest.Try(json.Marshal(doc)).OK(t)
	return string(out)
}

const (
	oneEnv  = `{"eid":"7","uid":1,"creation":"20/11/2026 08:11:00","username":null,"config":{"name":null,"gpu_memory":null,"gpus":null},"pids":[7],"kernel_ids":[]}`
	oneProc = `{"pid":9,"used_gpu_memory":[{"index":0,"gpu_memory":"1mi"}],"eid":"7"}`
)

func document(processes, detach string) string {
	return `{"terminate":{"processes":[` + processes + `]},"detach":` + detach + `}`
}

func TestItemsAreReadInOrder(t *testing.T) {
	first, last := strings.Replace(oneProc, "9", "2", 1), strings.Replace(oneProc, "9", "30", 1)
	other := strings.Replace(oneEnv, `"7"`, `"5"`, 1)
	o := proctest.Try(order.Decode143([]byte(document(last+","+first, `{"10":{"envs":[`+oneEnv+`]},"2":{"envs":[`+oneEnv+`,`+other+`]},"3":{"envs":[]}}`)))).OK(t)
	require.Equal(t, snapshot.PID(2), o.Terminate[0].Process.PID)
	require.Equal(t, snapshot.PID(30), o.Terminate[1].Process.PID)
	var order []string
	for _, d := range o.Detach {
		order = append(order, d.Device.String()+"/"+string(d.Environment.EID))
	}
	require.Equal(t, []string{"2/5", "2/7", "10/7"}, order)
}

func TestWhatIsNoOrderIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":               "",
		"garbage":               "sudo: a password is required",
		"null":                  "null",
		"a list":                "[]",
		"cut short":             recordedStdin[:90],
		"two documents":         recordedStdin + recordedStdin,
		"no detach":             `{"terminate":{"processes":[]}}`,
		"no terminate":          `{"detach":{}}`,
		"one key more":          `{"terminate":{"processes":[]},"detach":{},"id":1}`,
		"a key in capitals":     `{"Terminate":{"processes":[]},"detach":{}}`,
		"terminate is null":     `{"terminate":null,"detach":{}}`,
		"detach is null":        document("", "null"),
		"detach is a list":      document("", "[]"),
		"a device is null":      document("", `{"0":null}`),
		"a device without envs": document("", `{"0":{}}`),
		"a device -1":           document("", `{"-1":{"envs":[]}}`),
		"a device +1":           document("", `{"+1":{"envs":[]}}`),
		"a device 01":           document("", `{"01":{"envs":[]}}`),
		"a device 1e1":          document("", `{"1e1":{"envs":[]}}`),
		"a device 1024":         document("", `{"1024":{"envs":[]}}`),
		"a device without name": document("", `{"":{"envs":[]}}`),
		"an env twice":          document("", `{"0":{"envs":[`+oneEnv+`,`+oneEnv+`]}}`),
		"an env with one more":  document("", `{"0":{"envs":[`+strings.Replace(oneEnv, `{`, `{"x":1,`, 1)+`]}}`),
		"a process twice":       document(oneProc+","+oneProc, "{}"),
		"PID 0":                 document(strings.Replace(oneProc, "9", "0", 1), "{}"),
		"a negative PID":        document(strings.Replace(oneProc, "9", "-9", 1), "{}"),
		"a PID of 2^31":         document(strings.Replace(oneProc, "9", "2147483648", 1), "{}"),
		"a PID in quotes":       document(strings.Replace(oneProc, "9", `"9"`, 1), "{}"),
		"a start time":          document(strings.Replace(oneProc, "{", `{"start":1,`, 1), "{}"),
		"a bell in an eid":      document(strings.Replace(oneProc, `"7"`, `"7\u0007"`, 1), "{}"),
		"17 MB":                 document(strings.Repeat(" ", 17<<20), "{}"),
		"deep nesting":          strings.Repeat(`{"terminate":`, 20000),
	} {
		t.Run(name, func(t *testing.T) {
			o, err := order.Decode143([]byte(text))
			require.ErrorIs(t, err, snapshot.ErrInvalid)
			require.Equal(t, order.Order{}, o, "nothing of it may be used")
		})
	}
}

func TestAnErrorNamesThePlace(t *testing.T) {
	_, err := order.Decode143([]byte(document("", `{"3":{"envs":[{"eid":"7"}]}}`)))
	require.ErrorContains(t, err, "detach: device 3: not a valid genv document: environment no. 1 of the list")
}

func TestWhatTheFormatCannotSayIsNotLeftOut(t *testing.T) {
	known := []snapshot.DeviceUsage{{Index: 0, Memory: snapshot.MiB(1)}}
	for name, p := range map[string]snapshot.Process{
		"an unknown environment": {PID: 9, EnvUnknown: true, Usage: known},
		"an unknown memory":      {PID: 9, Usage: []snapshot.DeviceUsage{{Index: 0}}},
		"no device":              {PID: 9},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, proctest.Try(order.Encode143(order.Order{Terminate: []order.Termination{{Process: p}}})).Err, "process 9")
		})
	}
}

func TestAnEmptyOrder(t *testing.T) {
	data := proctest.Try(order.Encode143(order.Order{})).OK(t)
	require.Equal(t, `{"terminate":{"processes":[]},"detach":{}}`, string(data))
	require.True(t, proctest.Try(order.Decode143(data)).OK(t).Empty())
}

// FuzzDecodeOrder: whatever is read is within bounds, and says the same after a round trip.
func FuzzDecodeOrder(f *testing.F) {
	for i, recorded := range recordedOrders(f) {
		if i%20 == 0 {
			f.Add([]byte(recorded))
		}
	}
	f.Add([]byte(document(oneProc, `{"0":{"envs":[`+oneEnv+`]}}`)))
	f.Add([]byte(document(strings.Replace(oneProc, `"7"`, `"é\u2028😀<"`, 1), `{"1023":{"envs":[]}}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := order.Decode143(data)
		if err != nil {
			require.ErrorIs(t, err, snapshot.ErrInvalid)
			return
		}
		for _, item := range o.Terminate {
			require.Positive(t, item.Process.PID)
			if !item.Process.Expressible() {
				return
			}
		}
		again := proctest.Try(order.Encode143(o)).OK(t)
		require.Equal(t, o, proctest.Try(order.Decode143(again)).OK(t))
	})
}

// A host does not need the text of the findings to know who is outside.
func TestTheNativeOrderSaysWhoIsOutside(t *testing.T) {
	gpus := map[snapshot.DeviceIndex]snapshot.GPUUUID{0: "GPU-a", 12: "GPU-b"}
	o := order.Order{GPUs: gpus, Terminate: []order.Termination{
		{Process: snapshot.Process{PID: 7, EID: "1102"}, Reasons: order.Reasons{Because: []string{"non-env-processes/a/7/1"}}},
		{Process: snapshot.Process{PID: 8}, Reasons: order.Reasons{Because: []string{"env-devices/a/8/1"}}},
	}}
	data := proctest.Try(order.EncodeNative(o)).OK(t)
	require.Contains(t, string(data), `"outside":[7]`)
	got := proctest.Try(order.DecodeNative(data)).OK(t)
	require.True(t, got.Terminate[0].Outside(), "although it claims an environment")
	require.False(t, got.Terminate[1].Outside(), "although it has no id")
	require.Equal(t, gpus, got.GPUs)

	const names = `,"gpus":{"0":"GPU-a","12":"GPU-b"}`
	require.Contains(t, string(data), names)
	older := strings.Replace(string(data), names, "", 1)
	got = proctest.Try(order.DecodeNative([]byte(older))).OK(t)
	require.Empty(t, got.GPUs)
	got.SetReasons(o.Reasons())
	require.Equal(t, o.Reasons(), got.Reasons())
	got.SetReasons(order.AllReasons{Findings: [][]string{{"of another order"}}})
	require.Equal(t, o.Reasons(), got.Reasons())
}

// TestTheNativeOrderSaysWhatCounts: of such a process the environment may be unknown.
func TestTheNativeOrderSaysWhatCounts(t *testing.T) {
	o := order.Order{Terminate: []order.Termination{{Process: snapshot.Process{PID: 7, EnvUnknown: true}, Counted: true}, {Process: snapshot.Process{PID: 8}}}}
	data := proctest.Try(order.EncodeNative(o)).OK(t)
	got := proctest.Try(order.DecodeNative(data)).OK(t)
	require.True(t, got.Terminate[0].Counted && !got.Terminate[1].Counted)
	o.Terminate[0].Counted = false
	data = proctest.Try(order.EncodeNative(o)).OK(t)
	require.ErrorIs(t, proctest.Try(order.DecodeNative(data)).Err, snapshot.ErrInvalid)
}

func TestItemOf(t *testing.T) {
	sent := order.Order{
		Terminate: []order.Termination{{Process: snapshot.Process{PID: 7, EID: "1"}}},
		Detach:    []order.Detachment{{Device: 0, Environment: snapshot.Environment{EID: "1"}}},
	}
	for _, tt := range []struct {
		outcome           order.Outcome
		terminate, detach bool
	}{
		{order.Outcome{PID: 7, EID: "1"}, true, false},
		{order.Outcome{PID: 8, EID: "1"}, false, false},
		{order.Outcome{EID: "1"}, false, true},
		{order.Outcome{EID: "2"}, false, false},
		{order.Outcome{Device: 1, EID: "1"}, false, false},
	} {
		termination, detachment := sent.ItemOf(tt.outcome)
		require.Equal(t, tt.terminate, termination != nil, "%+v", tt.outcome)
		require.Equal(t, tt.detach, detachment != nil, "%+v", tt.outcome)
	}
}
