package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

// silent accepts connections and never answers.
func silent(t *testing.T) (address string) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(t.Context(), func() { _ = conn.Close() })
		}
	}()
	return listener.Addr().String()
}

// A check that takes 2 s is named on standard error. Ctrl-C then ends the
// command at once, with what is known on standard output.
func TestDoctorInterrupted(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	const until = "waiting for the exchange at the cloud" // a busy machine is slow before that, too
	stdout, said := w.interrupted(t, nil, until, append([]string{"doctor", "--provider=aws",
		"--proxy-url=http://" + silent(t)}, w.inHand(t)...)...)
	if len(said) == 0 || !strings.HasPrefix(said[len(said)-1], until) || !strings.HasSuffix(said[0], " …\n") {
		t.Errorf("got %q on standard error, want %q", said, until)
	}
	if want := "Interrupted during the check of the exchange at the cloud. [exchange]"; !strings.HasPrefix(stdout, "? ") ||
		!strings.Contains(stdout, want) {
		t.Errorf("got\n%s\nwant %q", stdout, want)
	}
}

// outOfTime calls wid with little time, which it keeps to. On a busy machine it
// may be over before the wanted step has begun: then wid is called again with
// more.
func (w *environment) outOfTime(t *testing.T, args []string, wanted func(r result) bool) {
	t.Helper()
	var r result
	for _, timeout := range []time.Duration{2 * time.Second, 10 * time.Second, 40 * time.Second} {
		start := time.Now()
		r = w.wid(t, "", append(args[:len(args):len(args)], "--timeout="+timeout.String())...)
		if took := time.Since(start); took > timeout+30*time.Second {
			t.Errorf("wid %q: after %s: %+v", args, took, r)
		}
		if wanted(r) {
			return
		}
	}
	t.Errorf("wid %q: %+v", args, r)
}
