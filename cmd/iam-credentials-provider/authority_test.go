package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

const testDomain = "iam-system.svc"

const testHost = "iam-credentials-provider." + testDomain

const day = 24 * time.Hour

func mustMaintain(t *testing.T, data map[string][]byte, now time.Time) authority {
	t.Helper()
	cas, err := maintain(data, now, testDomain)
	if err != nil {
		t.Fatal(err)
	}
	return cas
}

func mustIssue(t *testing.T, cas authority, now time.Time) (certificate, key []byte) {
	t.Helper()
	certificate, key, err := cas.issue(testHost, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

// trusts verifies a certificate with the CAs that a sidecar has.
func trusts(t *testing.T, bundle, certificate []byte, now time.Time) bool {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("no CA")
	}
	_, err := leaf(t, certificate).Verify(x509.VerifyOptions{Roots: roots, DNSName: testHost, CurrentTime: now})
	return err == nil
}

func leaf(t *testing.T, certificate []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(certificate)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Over 40 years and a rotation each week, a sidecar of four years ago trusts
// the certificate of the day.
func TestOldSidecarsTrustTheServer(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	data := map[string][]byte{}
	type week struct {
		now                      time.Time
		bundle, certificate, key []byte
	}
	var weeks []week
	signers := map[string]bool{}
	for now := start; now.Before(start.AddDate(40, 0, 0)); now = now.Add(7 * day) {
		cas := mustMaintain(t, data, now)
		if len(cas) > 2 {
			t.Fatalf("%d CAs at %s", len(cas), now)
		}
		w := week{now: now, bundle: cas.bundle()}
		if len(weeks) > 0 {
			w.certificate, w.key = weeks[len(weeks)-1].certificate, weeks[len(weeks)-1].key
		}
		if !cas.isCurrent(w.certificate, w.key, testHost, now) {
			w.certificate, w.key = mustIssue(t, cas, now)
		}
		signers[leaf(t, w.certificate).Issuer.String()] = true
		weeks = append(weeks, w)
	}
	if len(signers) < 5 {
		t.Errorf("CAs that signed: %v", signers)
	}
	for i, w := range weeks {
		for _, age := range []int{0, 1, 52, 4*52 - 2} {
			if i >= age && !trusts(t, weeks[i-age].bundle, w.certificate, w.now) {
				t.Fatalf("%s: a sidecar of %d weeks does not trust the server", w.now, age)
			}
		}
	}
}

func TestMaintain(t *testing.T) {
	now := time.Now()
	data := map[string][]byte{}
	first := mustMaintain(t, data, now)
	before := maps.Clone(data)
	if again := mustMaintain(t, data, now.Add(caLifetime/2-day)); !bytes.Equal(again.bundle(), first.bundle()) ||
		!maps.EqualFunc(data, before, bytes.Equal) {
		t.Error("the CA changes before half of its lifetime")
	}
	both := mustMaintain(t, data, now.Add(caLifetime/2))
	if len(both) != 2 || both.signer(now.Add(caLifetime/2)).Leaf.Subject.String() != first[0].Leaf.Subject.String() {
		t.Errorf("%d CAs after half of the lifetime, signer %s", len(both), both.signer(now).Leaf.Subject)
	}
	if got := both.signer(now.Add(caLifetime * 9 / 10)); got != &both[1] {
		t.Error("the first CA signs until its end")
	}
	if left := mustMaintain(t, data, now.Add(caLifetime+day)); slices.ContainsFunc(left, func(c tls.Certificate) bool {
		return c.Leaf.Equal(first[0].Leaf)
	}) {
		t.Error("an expired CA is kept")
	}
}

// A clock that is wrong for a while costs no key, and its CA signs nothing once
// the clock is right.
func TestWrongClockKeepsAllKeys(t *testing.T) {
	now := time.Now()
	for name, wrong := range map[string]time.Duration{
		"eleven years ahead": 11 * 365 * day, "eleven years behind": -11 * 365 * day, "a day behind": -day,
	} {
		t.Run(name, func(t *testing.T) {
			data := map[string][]byte{}
			first := mustMaintain(t, data, now)[0].Leaf
			for range 3 {
				mustMaintain(t, data, now.Add(wrong))
			}
			cas := mustMaintain(t, data, now)
			if !cas.signer(now).Leaf.Equal(first) {
				t.Errorf("of %d CAs, one of %s signs", len(cas), cas.signer(now).Leaf.NotBefore)
			}
		})
	}
}

// A damaged Secret stops the rotation: a new CA would cut off all sidecars.
func TestDamagedAuthority(t *testing.T) {
	now := time.Now()
	whole := map[string][]byte{}
	cas := mustMaintain(t, whole, now)
	certificate, key := mustIssue(t, cas, now)
	content := slices.Collect(maps.Values(whole))[0]
	for name, damaged := range map[string][]byte{
		"empty": nil, "text": []byte("x"), "no key": cas.bundle(), "key of another": slices.Concat(cas.bundle(), key),
		"no CA": slices.Concat(certificate, key), "cut": content[:len(content)/2],
	} {
		t.Run(name, func(t *testing.T) {
			data := map[string][]byte{"ca.pem": damaged}
			_, err := maintain(data, now, testDomain)
			if err == nil || !strings.Contains(err.Error(), `"ca.pem"`) || strings.Contains(err.Error(), "BEGIN") {
				t.Errorf("%v", err)
			}
			if len(data) != 1 {
				t.Errorf("the Secret has %d entries", len(data))
			}
		})
	}
}

func TestServingCertificateIsReplaced(t *testing.T) {
	now := time.Now()
	cas := mustMaintain(t, map[string][]byte{}, now)
	certificate, key := mustIssue(t, cas, now)
	_, otherKey := mustIssue(t, cas, now)
	another := mustMaintain(t, map[string][]byte{}, now)
	for name, test := range map[string]struct {
		cas              authority
		certificate, key []byte
		host             string
		at               time.Time
		want             bool
	}{
		"current":               {cas, certificate, key, testHost, now, true},
		"after 59 days":         {cas, certificate, key, testHost, now.Add(59 * day), true},
		"after 60 days":         {cas, certificate, key, testHost, now.Add(60 * day), false},
		"of another CA":         {another, certificate, key, testHost, now, false},
		"of another Service":    {cas, certificate, key, "iam-credentials-webhook." + testDomain, now, false},
		"key of another":        {cas, certificate, otherKey, testHost, now, false},
		"none":                  {cas, nil, nil, testHost, now, false},
		"of a later clock":      {cas, certificate, key, testHost, now.Add(-2 * clockSkew), false},
		"within the clock skew": {cas, certificate, key, testHost, now.Add(-clockSkew / 2), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.cas.isCurrent(test.certificate, test.key, test.host, test.at); got != test.want {
				t.Errorf("current: %t", got)
			}
		})
	}
}

// A stolen CA is of no use for other Services.
func TestAuthorityIsConstrained(t *testing.T) {
	now := time.Now()
	cas := mustMaintain(t, map[string][]byte{}, now)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cas.bundle())
	for host, want := range map[string]bool{testHost: true, "kubernetes.default.svc": false, "sts.amazonaws.com": false} {
		t.Run(host, func(t *testing.T) {
			certificate, _, err := cas.issue(host, nil, now)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := leaf(t, certificate).Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); (err == nil) != want {
				t.Errorf("verify: %v", err)
			}
		})
	}
}
