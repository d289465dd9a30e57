package live

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

var texts = []string{"", "gpu-1", "a\"b\\c", "<script>&", "\x00\x1b[2J\n", "\xff\xfe", "\u2028ä", "uid 1004"}

// fillRandomly gives a value random content; some of it is nil, empty or zero.
func fillRandomly(v reflect.Value, r *rand.Rand) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(texts[r.IntN(len(texts))])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.IntN(3)) * int64(r.Int32()))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(r.IntN(3) * r.IntN(100)))
	case reflect.Float64:
		v.SetFloat(float64(r.IntN(3)) * r.Float64() * 1e3)
	case reflect.Pointer:
		if r.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fillRandomly(v.Elem(), r)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(4), 4))
		for i := range v.Len() {
			fillRandomly(v.Index(i), r)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fillRandomly(key, r)
			fillRandomly(value, r)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			if r.IntN(3) > 0 {
				v.Set(reflect.ValueOf(time.Unix(int64(r.Int32()), int64(r.IntN(2)*r.IntN(1e9))).In(time.FixedZone("", 3600*r.IntN(3)))))
			}
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fillRandomly(v.Field(i), r)
			}
		}
	}
}

// TestEncoder: the pieces make up what json.Marshal writes.
func TestEncoder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var e encoder
	for revision := range uint64(300) {
		var f Fleet
		fillRandomly(reflect.ValueOf(&f.Hosts).Elem(), r)
		fillRandomly(reflect.ValueOf(&f.Users).Elem(), r)
		fillRandomly(reflect.ValueOf(&f.Failed).Elem(), r)
		f.Revision = 2*revision + 1
		for i := range f.Hosts {
			f.Hosts[i].Changed = f.Revision
			f.Hosts[i].Name += snapshot.Hostname(rune('a' + i)) // each name is there once
		}
		checkEncoder(t, &e, &f)
		for i := range f.Hosts { // they haven't changed, but were seen later
			if h := &f.Hosts[i]; !h.Seen.IsZero() {
				h.Seen = h.Seen.Add(time.Second)
			}
		}
		f.Revision++
		checkEncoder(t, &e, &f)
	}
}

func checkEncoder(t *testing.T, e *encoder, f *Fleet) {
	want, err := json.Marshal(f)
	require.NoError(t, err)
	text, err := e.encode(f)
	require.NoError(t, err)
	var got bytes.Buffer
	require.NoError(t, text.writeTo(&got, 0))
	require.JSONEq(t, string(want), got.String())
}

func TestAnUnchangedHostIsNotEncodedAgain(t *testing.T) {
	f := &Fleet{Revision: 1, Hosts: []Host{{Name: "a", Changed: 1, GPUs: []gpus.GPU{{Index: 1}}}}}
	var e encoder
	whole := func(revision, changed uint64) *byte {
		next := *f
		next.Revision, next.Hosts = revision, slices.Clone(f.Hosts)
		next.Hosts[0].Changed = changed
		text, err := e.encode(&next)
		require.NoError(t, err)
		again, err := e.encode(&next)
		require.NoError(t, err)
		require.Same(t, text, again)
		return &text.hosts[0].whole[0]
	}
	first := whole(1, 1)
	require.Same(t, first, whole(2, 1))
	require.NotSame(t, first, whole(3, 3))
}

// TestOneEncodingForAllViewers of a revision.
func TestOneEncodingForAllViewers(t *testing.T) {
	feed := NewFeed(Options{Now: time.Now})
	h := &feedHandler{feed: feed}
	feed.Consume(&controller.Cycle{Ended: true, Run: "r"}, nil)
	first, err := h.encodedFleet()
	require.NoError(t, err)
	var viewers sync.WaitGroup
	for range 100 {
		viewers.Go(func() {
			if text, err := h.encodedFleet(); err != nil || text != first {
				t.Error("it was encoded again", err)
			}
		})
	}
	viewers.Wait()
	feed.Consume(&controller.Cycle{Ended: true, Run: "r"}, nil)
	next, err := h.encodedFleet()
	require.NoError(t, err)
	require.NotSame(t, first, next)
}
