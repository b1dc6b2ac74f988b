package token

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

var fuzzed = client.ObjectKey{Namespace: "cluster1", Name: "cluster1-addon1-agent"}

// A message that names a UID is exactly the one that the hub writes for it.
func FuzzParseReady(f *testing.F) {
	for _, message := range []string{
		readyMessage(fuzzed, "b3f5"), readyMessage(fuzzed, ""),
		readyMessage(client.ObjectKey{Namespace: "cluster1", Name: "a"}, "b3f5"),
		"ServiceAccount cluster1/cluster1-addon1-agent (UID: ) is ready",
		"ServiceAccount cluster1/cluster1-addon1-agent (UID: a) is ready) is ready",
		readyMessage(fuzzed, "b3f5") + "\n", "",
	} {
		f.Add(message)
	}
	f.Fuzz(func(t *testing.T, message string) {
		uid, ok := parseReady(message, fuzzed)
		if ok && (readyMessage(fuzzed, uid) != message || uid == "") {
			t.Errorf("%q read as UID %q", message, uid)
		}
	})
}

func TestParseReady(t *testing.T) {
	const uid = "0f3e7c1a-22b8-4d37-9a55-6f2f6e0c1a77"
	if got, ok := parseReady("ServiceAccount cluster1/cluster1-addon1-agent (UID: "+uid+") is ready", fuzzed); !ok ||
		got != uid {
		t.Errorf("%q, %t", got, ok)
	}
	for name, message := range map[string]string{
		"another ServiceAccount": "ServiceAccount cluster1/cluster1-addon10-agent (UID: u) is ready",
		"another namespace":      "ServiceAccount cluster10/cluster1-addon1-agent (UID: u) is ready",
		"no UID":                 "ServiceAccount cluster1/cluster1-addon1-agent (UID: ) is ready",
		"a UID with a space":     "ServiceAccount cluster1/cluster1-addon1-agent (UID: u v) is ready",
		"more after it":          "ServiceAccount cluster1/cluster1-addon1-agent (UID: u) is ready now",
		"cut short":              "ServiceAccount cluster1/cluster1-addon1-agent (UID: ",
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := parseReady(message, fuzzed); ok {
				t.Errorf("read as %q", got)
			}
		})
	}
}

// A token that is taken has all that a refresh needs, and a refresh is never
// due within the least interval after its receipt.
func FuzzParseToken(f *testing.F) {
	f.Add(
		"e30.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6Y2x1c3RlcjE6Y2x1c3RlcjEtYWRkb24xLWFnZW50IiwiaWF0IjoxLCJleHAiOjIsImt1YmVybmV0ZXMuaW8iOnsic2VydmljZWFjY291bnQiOnsidWlkIjoidSJ9fX0.c2ln")
	f.Add("a.b.c")
	now := time.Unix(1_800_000_000, 0)
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := parseToken(raw, fuzzed)
		if (got == nil) == (err == nil) {
			t.Fatalf("token %v with error %v", got, err)
		}
		if got != nil && (got.uid == "" || !got.expiry.After(got.issued) ||
			got.renewAt(now, now).Before(now.Add(leastInterval))) {
			t.Errorf("token %+v is due at %s", got, got.renewAt(now, now))
		}
	})
}

func FuzzProgress(f *testing.F) {
	f.Add(
		[]byte(`{"received":"2026-06-01T12:00:00Z","failure":{"goal":"u/600","retry":"2026-06-01T12:00:00Z","seconds":9}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		first := progressOf(map[string][]byte{progressState: content})
		if again := progressOf(first.state()).state(); string(again[progressState]) != string(first.state()[progressState]) {
			t.Errorf("%s, then %s", first.state()[progressState], again[progressState])
		}
	})
}
