package proxy_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/workloadid/workloadid/podidentity/proxy"
)

// The durations are those of docs/podidentity.md.
func TestSTSOutageIsNotNoticed(t *testing.T) {
	var held time.Time // expiry of the latest credentials before the outage
	down := map[string]func(http.ResponseWriter, *http.Request) bool{
		"200 with the old credentials of the server's cache": func(w http.ResponseWriter, _ *http.Request) bool {
			issue(w, 1, held)
			return true
		},
		"503 with Retry-After": func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Retry-After", "3600")
			return refuseWith(w, http.StatusServiceUnavailable, "Throttling", "later")
		},
		"401":        func(w http.ResponseWriter, _ *http.Request) bool { return refuseWith(w, 401, "Unauthorized", "no") },
		"no answer":  func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true },
		"bare 403":   func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(403); return true },
		"empty page": func(http.ResponseWriter, *http.Request) bool { return true },
	}
	moments := map[string]int{"right after an issue": 1, "in the worst moment before a renewal": 2}
	for session, outage := range map[time.Duration]time.Duration{60: 30, 55: 27, 50: 24, 45: 21, 40: 19} {
		for kind, fail := range down {
			for moment, firstCall := range moments {
				t.Run(fmt.Sprintf("%d minutes of %d %s, %s", outage, session, moment, kind), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						checkOutage(t, session*time.Minute, outage*time.Minute, firstCall, &held, fail)
					})
				})
			}
		}
	}
}

// checkOutage has the server down from just after the first call on, or from
// the second call on.
func checkOutage(t *testing.T, session, outage time.Duration, firstCall int, held *time.Time,
	fail func(http.ResponseWriter, *http.Request) bool) {
	var until time.Time
	p := running(t, &issuer{t: t, answer: func(w http.ResponseWriter, r *http.Request, call int) bool {
		if call == firstCall {
			until = time.Now().Add(outage)
		}
		if call > 1 && time.Now().Before(until) {
			return fail(w, r)
		}
		*held = time.Now().Add(session)
		issue(w, call, *held)
		return true
	}})
	synctest.Wait()
	seen := map[string]bool{}
	for range 2 * 60 * 60 / 5 {
		pass(5 * time.Second)
		a := ask(t, p)
		expires, err := time.Parse(time.RFC3339, a.Expiration)
		if a.status != http.StatusOK || err != nil || time.Until(expires) < time.Minute {
			t.Fatalf("%s after the start: got %d %s, want credentials for a minute", time.Since(until.Add(-outage)), a.status, a.body)
		}
		seen[a.AccessKeyID] = true
	}
	if len(seen) < 3 {
		t.Errorf("only %d credentials in two hours", len(seen))
	}
}

func TestRenewsWith35Of60MinutesLeft(t *testing.T) {
	for name, test := range map[string]struct{ lifetime, earliest, latest time.Duration }{
		"an hour":    {time.Hour, 25 * time.Minute, 27 * time.Minute},
		"40 minutes": {40 * time.Minute, 1000 * time.Second, 1080 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := issuing(t, test.lifetime)
				p := running(t, server)
				for range 3 * 60 * 60 {
					pass(time.Second)
					ask(t, p) // never a reason to call the server
				}
				if len(server.calls) < 5 {
					t.Fatalf("got %d calls in three hours, want 5 at least", len(server.calls))
				}
				// The answer cuts the expiry to whole seconds, so a wait is up
				// to one second shorter.
				for i, at := range server.calls[1:] {
					if waited := at.Sub(server.calls[i]); waited < test.earliest-time.Second || waited > test.latest+time.Second {
						t.Errorf("renewed after %s", waited)
					}
				}
			})
		})
	}
}

func TestServesUntilAMinuteBeforeTheExpiryThen503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, &issuer{t: t, answer: func(w http.ResponseWriter, _ *http.Request, call int) bool {
			return call > 1 && refuseWith(w, http.StatusServiceUnavailable, "Throttling", "STS is down")
		}})
		if a := ask(t, p); a.status != http.StatusServiceUnavailable || a.Code != "Unavailable" || a.Message == "" {
			t.Errorf("before the first fetch: %d %s", a.status, a.body)
		}
		run(t, p)
		pass(59*time.Minute - time.Millisecond)
		if a := ask(t, p); a.status != http.StatusOK {
			t.Errorf("just before the last minute: %d %s", a.status, a.body)
		}
		pass(time.Millisecond)
		if a := ask(t, p); a.status != http.StatusServiceUnavailable || a.Code != "Throttling" || a.Message != "STS is down" {
			t.Errorf("in the last minute: %d %s", a.status, a.body)
		}
	})
}

func TestDecisionOfTheServerDropsCredentialsAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bound atomic.Bool
		bound.Store(true)
		var log strings.Builder
		server := &issuer{t: t, answer: func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			return !bound.Load() && refuseWith(w, http.StatusForbidden, "NotBound",
				"no IAMBinding names ServiceAccount \"default/app\"")
		}}
		p := running(t, server, func(o *proxy.Options) {
			o.Logger = funcr.New(func(_, line string) { log.WriteString(line + "\n") }, funcr.Options{})
		})
		synctest.Wait()
		bound.Store(false)
		pass(28 * time.Minute)
		a := ask(t, p)
		if a.status != http.StatusForbidden || a.Code != "NotBound" ||
			a.Message != `no IAMBinding names ServiceAccount "default/app"` {
			t.Errorf("got %d %s, want the refusal of the server", a.status, a.body)
		}
		if !strings.Contains(log.String(), "NotBound: no IAMBinding names ServiceAccount") {
			t.Errorf("no reason in the log:\n%s", &log)
		}
		bound.Store(true)
		pass(time.Minute)
		if a := ask(t, p); a.status != http.StatusOK {
			t.Errorf("bound again: %d %s", a.status, a.body)
		}
		for _, part := range []string{"very/secret", "session", secret, "pod-token"} {
			if strings.Contains(log.String(), part) {
				t.Errorf("the log holds %q:\n%s", part, &log)
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		from, to      int
		code          string
		message, want string
	}{
		// A 401 can pass: the token on the disk is replaced, or the API server
		// comes back.
		"a token is no decision": {401, 503, "NotAttested", "no pod", "no pod"},
		"a long message":         {403, 403, "AccessDenied", strings.Repeat("ä", 10_000), strings.Repeat("ä", 150)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := running(t, refusing(t, test.from, test.code, test.message))
				synctest.Wait()
				if a := ask(t, p); a.status != test.to || a.Code != test.code || a.Message != test.want {
					t.Errorf("got %d %s, want %d %s: %s", a.status, a.body, test.to, test.code, test.want)
				}
			})
		})
	}
}

func TestBacksOff(t *testing.T) {
	for name, test := range map[string]struct {
		retryAfter  string
		least, most int
	}{
		"without a hint":       {"", 95, 130}, // 30 s and jitter
		"Retry-After a minute": {"60", 47, 61},
		"Retry-After a day":    {"86400", 47, 61},
		"Retry-After a second": {"1", 95, 130},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &issuer{t: t, answer: func(w http.ResponseWriter, _ *http.Request, _ int) bool {
					w.Header().Set("Retry-After", test.retryAfter)
					return refuseWith(w, http.StatusServiceUnavailable, "Throttling", "later")
				}}
				p := running(t, server)
				for range 3600 {
					pass(time.Second)
					ask(t, p)
				}
				if n := server.count(); n < test.least || n > test.most {
					t.Errorf("got %d calls in an hour, want %d to %d", n, test.least, test.most)
				}
			})
		})
	}
}

func TestTokenRotatedOnDiskIsUsedAtTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := tokenFile(t, "first")
		server := &issuer{t: t}
		run(t, newProxy(t, server, func(o *proxy.Options) { o.TokenFile = name }))
		synctest.Wait()
		if err := os.WriteFile(name, []byte("second"), 0o600); err != nil {
			t.Fatal(err)
		}
		pass(28 * time.Minute)
		if got := strings.Join(server.tokens, " "); got != "first second" {
			t.Errorf("tokens %q", got)
		}
	})
}

func TestTokenFileThatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &issuer{t: t}
		p := running(t, server, func(o *proxy.Options) { o.TokenFile = "/nonexistent/token" })
		synctest.Wait()
		if a := ask(t, p); a.status != http.StatusServiceUnavailable || !strings.Contains(a.Message, "/nonexistent/token") ||
			server.count() != 0 {
			t.Errorf("got %s after %d calls, want the missing file without a call", a.body, server.count())
		}
	})
}

// A replica may answer from its own cache with credentials that the proxy
// already holds.
func TestKeepsTheCredentialsThatExpireLater(t *testing.T) {
	for name, lifetime := range map[string]time.Duration{"earlier expiry": 50 * time.Minute, "same expiry": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				server := &issuer{t: t, answer: func(w http.ResponseWriter, _ *http.Request, call int) bool {
					cached := call > 1 && time.Since(begin) <= 28*time.Minute
					if cached {
						issue(w, call, begin.Add(lifetime))
					}
					return cached
				}}
				p := running(t, server)
				pass(28 * time.Minute)
				if a := ask(t, p); server.count() < 2 || a.AccessKeyID != "ASIA1" {
					t.Errorf("got %s after %d calls, want the first credentials after 2", a.body, server.count())
				}
				pass(time.Minute + time.Second)
				if a := ask(t, p); a.AccessKeyID == "ASIA1" {
					t.Errorf("got %s after %d calls, want other credentials", a.body, server.count())
				}
			})
		})
	}
}

func TestClockSkew(t *testing.T) {
	t.Run("slow clock: no expiry beyond an hour", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := issuing(t, 4*time.Hour)
			p := running(t, server)
			synctest.Wait()
			if a := ask(t, p); a.Expiration != time.Now().Add(time.Hour).UTC().Format(time.RFC3339) {
				t.Errorf("got %s at %s, want an hour", a.body, time.Now().UTC())
			}
			pass(28 * time.Minute)
			if server.count() != 2 {
				t.Errorf("got %d calls in 28 minutes, want 2", server.count())
			}
		})
	})
	t.Run("fast clock: 503 that names the clock, no loop", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := issuing(t, -time.Hour)
			p := running(t, server)
			pass(time.Hour)
			if a := ask(t, p); a.status != http.StatusServiceUnavailable || !strings.Contains(a.Message, "check the clock") {
				t.Errorf("got %d %s, want a 503 that names the clock", a.status, a.body)
			}
			if server.count() > 130 {
				t.Errorf("got %d calls in an hour, want 130 at most", server.count())
			}
		})
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	for name, hang := range map[string]bool{"while it waits": false, "during a call": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				p := newProxy(t, &issuer{t: t, answer: func(_ http.ResponseWriter, r *http.Request, _ int) bool {
					if hang {
						<-r.Context().Done()
					}
					return hang
				}})
				done := make(chan error)
				go func() { done <- p.Run(ctx) }()
				synctest.Wait()
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
