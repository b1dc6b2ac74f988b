package bootstrap_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/workloadid/workloadid/bootstrap"
)

func TestDiscover(t *testing.T) {
	authority := newCA(t)
	server := authority.server(t, configMap(signedInfo(t, wellKnown, authority.pem)))
	for name, option := range map[string]bootstrap.DiscoverOption{"pinned": authority.pin(),
		"unpinned": bootstrap.WithoutPins()} {
		info, err := bootstrap.Discover(t.Context(), []string{strings.TrimPrefix(server.URL, "https://")},
			parse(t, wellKnown), option)
		if err != nil || info.Server != "https://10.0.0.1:6443" || string(info.CAData) != string(authority.pem) {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
}

// Cluster parts boot out of order: each state is told once, and the discovery
// goes on by itself. The server sends its leaf alone, as kubeadm's
// apiserver.crt is.
func TestDiscoverBelowAnIntermediateCA(t *testing.T) {
	root, other := newCA(t), newCA(t)
	between := issueCA(t, &root)
	lower := issueCA(t, &between)
	forAnotherName := &x509.Certificate{DNSNames: []string{"other.example.com"}}
	for name, row := range map[string]struct {
		signer   ca
		template *x509.Certificate
		bundle   []ca
		pin      ca
		cause    bootstrap.Cause // empty: discovered
	}{
		"pin of the intermediate":        {signer: between, bundle: []ca{between, root}, pin: between},
		"pin of the root":                {signer: between, bundle: []ca{between, root}, pin: root},
		"pin of the root above two":      {signer: lower, bundle: []ca{lower, between, root}, pin: root},
		"pin of the middle one of three": {signer: lower, bundle: []ca{root, between, lower}, pin: between},
		"intermediate absent": {signer: lower, bundle: []ca{lower, root}, pin: root,
			cause: bootstrap.CauseCertificateOfAnotherCA},
		"pin of a CA below the server's": {signer: between, bundle: []ca{lower, between, root}, pin: lower,
			cause: bootstrap.CauseCertificateOfAnotherCA},
		"server's CA unpinned": {signer: other, bundle: []ca{other, root}, pin: root,
			cause: bootstrap.CauseCertificateOfAnotherCA},
		"certificate for another name": {signer: between, template: forAnotherName, bundle: []ca{between, root},
			pin: root, cause: bootstrap.CauseCertificateForAnotherName},
		"pin of a CA outside cluster-info": {signer: between, bundle: []ca{between}, pin: root,
			cause: bootstrap.CauseCANotPinned},
		"pin of the root, unrelated CA too": {signer: between, bundle: []ca{other, between, root}, pin: root},
	} {
		t.Run(name, func(t *testing.T) {
			var bundle []byte
			for _, c := range row.bundle {
				bundle = append(bundle, c.pem...)
			}
			template := row.template
			if template == nil {
				template = &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
			}
			server := row.signer.serverWith(t, template, configMap(signedInfo(t, wellKnown, bundle)))
			info, err := bootstrap.Discover(t.Context(), []string{server.URL}, parse(t, wellKnown), row.pin.pin(),
				bootstrap.WithTimeout(20*time.Second))
			if row.cause != "" {
				wantCause(t, name, err, row.cause)
				return
			}
			if err != nil || string(info.CAData) != string(bundle) {
				t.Errorf("%+v, %v", info, err)
			}
		})
	}
}

func TestDiscoverWaits(t *testing.T) {
	authority := newCA(t)
	good := signedInfo(t, wellKnown, authority.pem)
	answers := []http.HandlerFunc{
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) },
		configMap(map[string]string{"kubeconfig": good["kubeconfig"]}),
		configMap(good),
	}
	var asked atomic.Int64
	server := authority.server(t, func(w http.ResponseWriter, r *http.Request) {
		answers[min(asked.Add(1), int64(len(answers)))-1](w, r)
	})
	var states []string
	_, err := bootstrap.Discover(t.Context(), []string{server.URL}, parse(t, wellKnown), authority.pin(),
		bootstrap.WithProgress(func(s string) { states = append(states, s) }), bootstrap.WithInterval(time.Millisecond))
	want := []string{"the server answers with HTTP 503", "anonymous requests may not read cluster-info (403)",
		"the server answers with HTTP 418", "cluster-info has no signatures at all"}
	if err != nil || !slices.Equal(states, want) {
		t.Errorf("%q, %v", states, err)
	}
}

// When the time is up, each cause has a message and a remedy of its own.
func TestDiscoverTimesOut(t *testing.T) {
	authority := newCA(t)
	good := signedInfo(t, wellKnown, authority.pem)
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"kind":"Status"}`)
		}
	}
	proxy := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }
	down := authority.server(t, status(200))
	down.Close()
	for name, tc := range map[string]struct {
		url   string
		want  string
		cause bootstrap.Cause
	}{
		"403 of a proxy": {authority.server(t, proxy).URL, "RoleBinding", bootstrap.CauseNotAnAPIServer},
		"503":            {authority.server(t, status(503)).URL, "starting or overloaded", bootstrap.CauseServerStarting},
		"token expired": {authority.server(t, configMap(signedInfo(t, "xyz789.0123456789abcdef", authority.pem))).URL,
			`not signed for the token ID "abc123", but for others; the token is expired, deleted, mistyped, or without the usage signing`, bootstrap.CauseNotSignedForToken},
		"signer down": {authority.server(t, configMap(map[string]string{"kubeconfig": good["kubeconfig"]})).URL,
			"the signer is not running", bootstrap.CauseNotSigned},
		"401": {authority.server(t, status(401)).URL, "anonymous access is off", bootstrap.CauseAnonymousRefused},
		"403": {authority.server(t, status(403)).URL, "RoleBinding", bootstrap.CauseAnonymousForbidden},
		"404": {authority.server(t, status(404)).URL, "has not published it", bootstrap.CauseNotPublished},
		"418": {authority.server(t, status(418)).URL, "the address is wrong, or something in between answers",
			bootstrap.CauseNotAnAPIServer},
		"cannot connect": {down.URL, "it is down, or the address is wrong", bootstrap.CauseServerUnreachable},
		"nothing in it":  {authority.server(t, configMap(nil)).URL, "no kubeconfig yet", bootstrap.CauseNotPublished},
		"clock behind": {authority.serverWith(t,
			&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(time.Hour),
				NotAfter: time.Now().Add(2 * time.Hour)}, configMap(good)).URL, "the clock of this machine is wrong",
			bootstrap.CauseCertificateNotValidNow},
	} {
		ctx, timeUp := context.WithCancel(t.Context())
		_, err := bootstrap.Discover(ctx, []string{tc.url}, parse(t, wellKnown), authority.pin(),
			bootstrap.WithProgress(func(string) { timeUp() }))
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), tc.want) ||
			strings.Contains(err.Error(), "0123456789") {
			t.Errorf("%s: %v", name, err)
		}
		wantCause(t, name, err, tc.cause)
	}
}

// A command can end at the first look what a person has to mend.
func TestDiscoverEndsAtAFinalCause(t *testing.T) {
	authority, asked := newCA(t), 0
	forbidden := func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","code":403}`)
	}
	_, err := bootstrap.Discover(t.Context(), []string{authority.server(t, forbidden).URL}, parse(t, wellKnown),
		authority.pin(), bootstrap.WithFinalCauses(bootstrap.CauseAnonymousForbidden))
	wantCause(t, "403", err, bootstrap.CauseAnonymousForbidden)
	if asked != 1 || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

// A command can end the wait for a token that the cluster does not know; the
// library waits on its own account.
func TestDiscoverEndsTheWaitForATokenWithoutSignature(t *testing.T) {
	authority := newCA(t)
	others := authority.server(t, configMap(signedInfo(t, "xyz789.0123456789abcdef", authority.pem))).URL
	_, err := bootstrap.Discover(t.Context(), []string{others}, parse(t, wellKnown), authority.pin(),
		bootstrap.WithInterval(time.Millisecond), bootstrap.WithTokenPatience(20*time.Millisecond))
	wantCause(t, "patience", err, bootstrap.CauseNotSignedForToken)
	if errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "expired, deleted, mistyped, or without the usage signing") {
		t.Errorf("it ends with %v", err)
	}
	_, err = bootstrap.Discover(t.Context(), []string{others}, parse(t, wellKnown), authority.pin(),
		bootstrap.WithInterval(time.Millisecond), bootstrap.WithTimeout(200*time.Millisecond))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without patience it ends with %v", err)
	}
	unsigned := authority.server(t,
		configMap(map[string]string{"kubeconfig": signedInfo(t, wellKnown, authority.pem)["kubeconfig"]})).URL
	_, err = bootstrap.Discover(t.Context(), []string{unsigned}, parse(t, wellKnown), authority.pin(),
		bootstrap.WithInterval(time.Millisecond),
		bootstrap.WithTimeout(200*time.Millisecond), bootstrap.WithTokenPatience(time.Millisecond))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while no token has a signature it ends with %v", err)
	}
}

func wantCause(t *testing.T, name string, err error, cause bootstrap.Cause) {
	t.Helper()
	var failed *bootstrap.DiscoveryError
	if !errors.As(err, &failed) || len(failed.Addresses) != 1 || failed.Addresses[0].Cause != cause ||
		!strings.HasPrefix(failed.Addresses[0].Error(), failed.Addresses[0].Address+": ") {
		t.Errorf("%s: want %s, got %+v", name, cause, failed)
	}
}

// An attack makes the discovery fail at once.
func TestDiscoverUnderAttack(t *testing.T) {
	authority, foreign := newCA(t), newCA(t)
	good := signedInfo(t, wellKnown, authority.pem)
	forged := signedInfo(t, "abc123.fedcba9876543210", foreign.pem)
	both := signedInfo(t, wellKnown, append(slices.Clone(authority.pem), foreign.pem...))
	credentials := map[string]string{
		"kubeconfig": good["kubeconfig"] + "users: [{name: u, user: {exec: {command: rm}}}]\n"}
	credentials["kubeconfig"] = strings.Replace(credentials["kubeconfig"], "users: null\n", "", 1)
	credentials["jws-kubeconfig-abc123"] = bootstrap.Sign([]byte(credentials["kubeconfig"]), parse(t, wellKnown))
	none := map[string]string{"kubeconfig": good["kubeconfig"],
		"jws-kubeconfig-abc123": "eyJhbGciOiJub25lIiwia2lkIjoiYWJjMTIzIn0.."}
	changing := 0
	for name, tc := range map[string]struct {
		server *httptest.Server
		want   string
		is     error
		cause  bootstrap.Cause
	}{
		"forged signature": {authority.server(t, configMap(forged)), "is mistyped, or belongs to another cluster",
			bootstrap.ErrSignature, bootstrap.CauseSignatureWrong},
		"no algorithm": {authority.server(t, configMap(none)), "is mistyped, or belongs to another cluster",
			bootstrap.ErrSignature, bootstrap.CauseSignatureWrong},
		"certificate of a foreign CA next to the pinned one": {foreign.server(t, configMap(both)),
			"not from a pinned authority", bootstrap.ErrPins, bootstrap.CauseCertificateOfAnotherCA},
		"another authority": {foreign.server(t, configMap(signedInfo(t, wellKnown, foreign.pem))),
			"none of its certificate authorities is pinned; it has [sha256:", bootstrap.ErrPins, bootstrap.CauseCANotPinned},
		"second answer differs": {authority.server(t, func(w http.ResponseWriter, r *http.Request) {
			changing++
			if changing > 1 {
				configMap(both)(w, r)
				return
			}
			configMap(good)(w, r)
		}), "differs over the verified connection", bootstrap.ErrPins, bootstrap.CauseContentDiffers},
		"redirect": {authority.server(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}), "refused to follow a redirect", nil, bootstrap.CauseNotAnAPIServer},
		"credentials": {authority.server(t, configMap(credentials)), "must not hold credentials", nil,
			bootstrap.CauseClusterInfoMalformed},
		"not an API server": {authority.server(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<html>")
		}), "is that an API server?", nil, bootstrap.CauseNotAnAPIServer},
	} {
		_, err := bootstrap.Discover(t.Context(), []string{tc.server.URL}, parse(t, wellKnown), authority.pin(),
			bootstrap.WithInterval(time.Millisecond))
		if err == nil || !strings.Contains(err.Error(), tc.want) ||
			!strings.HasPrefix(err.Error(), "discover cluster at "+tc.server.URL) || tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%s: %v", name, err)
		}
		wantCause(t, name, err, tc.cause)
	}
	endless := authority.server(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat(" ", 1<<20)); err != nil {
				return
			}
		}
	})
	ctx, timeUp := context.WithCancel(t.Context())
	_, err := bootstrap.Discover(ctx, []string{endless.URL}, parse(t, wellKnown), authority.pin(),
		bootstrap.WithProgress(func(string) { timeUp() }))
	if err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("endless answer: %v", err)
	}
	slow := authority.server(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "{")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	_, err = bootstrap.Discover(t.Context(), []string{slow.URL}, parse(t, wellKnown), authority.pin(),
		bootstrap.WithTimeout(200*time.Millisecond), bootstrap.WithProgress(nil))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("an answer that does not end: %v", err)
	}
}

// A server that answers in another protocol fills neither the error nor the
// progress.
func TestDiscoverBoundsWhatALongBannerSays(t *testing.T) {
	authority := newCA(t)
	for name, size := range map[string]int{"below the bound of headers": 32 << 10, "above the bound of headers": 2 << 20} {
		t.Run(name, func(t *testing.T) {
			server := authority.server(t, func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(conn, strings.Repeat("\x01", size)+"\r\n\r\n")
				_ = conn.Close()
			})
			ctx, timeUp := context.WithCancel(t.Context())
			var progress string
			_, err := bootstrap.Discover(ctx, []string{server.URL}, parse(t, wellKnown), bootstrap.WithoutPins(),
				bootstrap.WithProgress(func(s string) { progress = s; timeUp() }))
			if !errors.Is(err, context.Canceled) || !strings.Contains(progress, "cannot be reached") ||
				len(err.Error()) > 2000 || len(progress) > 2000 {
				t.Errorf("the error has %d bytes, the progress %d: %.300q", len(err.Error()), len(progress), err)
			}
		})
	}
}

// One working address is enough, in spite of the others.
func TestDiscoverAtSeveralAddresses(t *testing.T) {
	authority := newCA(t)
	good := signedInfo(t, wellKnown, authority.pem)
	works := authority.server(t, configMap(good)).URL
	hangs := authority.server(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }).URL
	for name, other := range map[string]string{
		"another waits": authority.server(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
		}).URL,
		"another hangs":  hangs,
		"another forges": authority.server(t, configMap(signedInfo(t, "abc123.fedcba9876543210", authority.pem))).URL,
		"another works":  works,
	} {
		for _, servers := range [][]string{{other, works}, {works, other}} {
			t.Run(name, func(t *testing.T) {
				info, err := bootstrap.Discover(t.Context(), servers, parse(t, wellKnown), authority.pin(),
					bootstrap.WithInterval(time.Millisecond))
				if err != nil || info.Server != "https://10.0.0.1:6443" {
					t.Errorf("%+v, %v", info, err)
				}
			})
		}
	}
}

// A forged answer at one address does not stop the discovery at another.
func TestDiscoverGivesUpOneAddress(t *testing.T) {
	authority := newCA(t)
	good, givenUp := signedInfo(t, wellKnown, authority.pem), make(chan struct{})
	forges := authority.server(t, configMap(signedInfo(t, "abc123.fedcba9876543210", authority.pem))).URL
	late := authority.server(t, func(w http.ResponseWriter, r *http.Request) { <-givenUp; configMap(good)(w, r) }).URL
	var states []string
	_, err := bootstrap.Discover(t.Context(), []string{forges, late}, parse(t, wellKnown), authority.pin(),
		bootstrap.WithInterval(time.Millisecond), bootstrap.WithProgress(func(s string) {
			if states = append(states, s); strings.Contains(s, "given up") {
				close(givenUp)
			}
		}))
	if err != nil || len(states) != 2 ||
		!strings.HasPrefix(states[0], forges+": the signature of cluster-info does not fit") ||
		!strings.HasPrefix(states[1], forges+": given up: ") {
		t.Errorf("%q, %v", states, err)
	}
}

// When no address works, the error is one line that names each of them and its
// failure.
func TestDiscoverFailsAtAllAddresses(t *testing.T) {
	authority := newCA(t)
	forges := authority.server(t, configMap(signedInfo(t, "abc123.fedcba9876543210", authority.pem))).URL
	foreign := newCA(t)
	other := foreign.server(t, configMap(signedInfo(t, wellKnown, foreign.pem))).URL
	missing := authority.server(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }).URL
	ctx, timeUp := context.WithCancel(t.Context())
	left := 3 // two are given up, one waits
	_, err := bootstrap.Discover(ctx, []string{forges, other, missing}, parse(t, wellKnown), authority.pin(),
		bootstrap.WithInterval(time.Millisecond), bootstrap.WithProgress(func(s string) {
			if strings.Contains(s, "given up") || strings.Contains(s, "404") {
				left--
			}
			if left == 0 {
				timeUp()
			}
		}))
	if !errors.Is(err, bootstrap.ErrSignature) || !errors.Is(err, bootstrap.ErrPins) || !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for _, want := range []string{"discover cluster at http", forges + ": the signature", other + ": ",
		missing + ": context canceled while waiting: there is no cluster-info (404)"} {
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// A neighbour with the same token and a certificate of the cluster's authority
// for his own name cannot have that name checked.
func TestDiscoverProvesTheNameThatTheCallerGave(t *testing.T) {
	authority, evil := newCA(t), newCA(t)
	data := signed(t, wellKnown,
		&bootstrap.ClusterInfo{Server: "https://evil.example", CAData: append(slices.Clone(authority.pem), evil.pem...),
			TLSServerName: "worker-7"})
	neighbour := authority.serverWith(t, &x509.Certificate{DNSNames: []string{"worker-7"}}, configMap(data))
	for name, wrong := range map[string]string{"the host of the address": "",
		"a name of the caller's": "kubernetes.default"} {
		info, err := bootstrap.Discover(t.Context(), []string{neighbour.URL}, parse(t, wellKnown), authority.pin(),
			bootstrap.WithServerName(wrong))
		if !errors.Is(err, bootstrap.ErrPins) || info != nil || !strings.Contains(err.Error(), "for another name") {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
	tunnel := authority.serverWith(t, &x509.Certificate{DNSNames: []string{"kubernetes.default"}},
		configMap(signedInfo(t, wellKnown, authority.pem)))
	if _, err := bootstrap.Discover(t.Context(), []string{tunnel.URL}, parse(t, wellKnown), authority.pin(),
		bootstrap.WithServerName("kubernetes.default")); err != nil {
		t.Errorf("the caller knows the name: %v", err)
	}
}

// Malformed arguments are told before a packet is sent.
func TestDiscoverWithoutAPacket(t *testing.T) {
	for want, try := range map[string]func() error{
		"no address": func() error {
			_, err := bootstrap.Discover(t.Context(), nil, parse(t, wellKnown), bootstrap.WithoutPins())
			return err
		},
		"no token": func() error {
			_, err := bootstrap.Discover(t.Context(), []string{"127.0.0.1:1"}, bootstrap.Token{}, bootstrap.WithoutPins())
			return err
		},
		"no pins": func() error {
			_, err := bootstrap.Discover(t.Context(), []string{"127.0.0.1:1"}, parse(t, wellKnown))
			return err
		},
		"https://": func() error {
			_, err := bootstrap.Discover(t.Context(), []string{"http://127.0.0.1:1"}, parse(t, wellKnown),
				bootstrap.WithoutPins())
			return err
		},
		"more than 0": func() error {
			_, err := bootstrap.Discover(t.Context(), []string{"127.0.0.1:1"}, parse(t, wellKnown), bootstrap.WithoutPins(),
				bootstrap.WithTimeout(0))
			return err
		},
		`"a b"`: func() error {
			_, err := bootstrap.Discover(t.Context(), []string{"127.0.0.1:1"}, parse(t, wellKnown), bootstrap.WithoutPins(),
				bootstrap.WithServerName("a b"))
			return err
		},
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, server := range []string{"", "10.0.0.1:99999", "::1", "fe80::1:6443", "host:", "10.0.0.1:6443:6443",
		"https://host?", "a b", "10.0.0.1;x", "https://10.0.0.1:0",
		"10.0.0.1 :6443", "ho_st$", "user:hunter2@host"} {
		_, err := bootstrap.Discover(t.Context(), []string{"127.0.0.1:1", server}, parse(t, wellKnown),
			bootstrap.WithoutPins(), bootstrap.WithTimeout(time.Nanosecond))
		if err == nil || !strings.Contains(err.Error(), "the server has to be") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", server, err)
		}
	}
}

func TestDiscoverEndsWithItsContext(t *testing.T) {
	authority := newCA(t)
	ctx, cancel := context.WithCancel(t.Context())
	server := authority.server(t, func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
	if _, err := bootstrap.Discover(ctx, []string{server.URL}, parse(t, wellKnown), authority.pin()); err == nil ||
		!strings.Contains(err.Error(), "context canceled") {
		t.Errorf("got %v", err)
	}
}
