package podidentity_test

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/internal/testing/testca"
)

func certificates(t *testing.T) (ca, other, leaf string) {
	t.Helper()
	first := testca.New(t, "first")
	leaf = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: first.Issue(t).Leaf.Raw}))
	return first.PEM(), testca.New(t, "other").PEM(), leaf
}

func TestParseBundle(t *testing.T) {
	ca, other, leaf := certificates(t)
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret")}))
	for name, test := range map[string]struct {
		text string
		cas  int
		want string
	}{
		"one CA":              {ca, 1, ""},
		"two CAs":             {ca + other, 2, ""},
		"comments":            {"# first\n" + ca + "# other\n" + other, 2, ""},
		"as many as possible": {strings.Repeat(ca, 16), 16, ""},
		"too many":            {strings.Repeat(ca, 17), 0, "more than 16"},
		"too large":           {ca + strings.Repeat("\n", 16<<10), 0, "bytes"},
		"empty":               {"", 0, "no PEM"},
		"text":                {"/certs/ca.crt", 0, "no PEM"},
		"a serving one":       {ca + leaf, 0, "block 2"},
		"a private key":       {ca + key, 0, "block 2"},
		"a damaged block":     {ca + strings.Replace(other, "END", "DEN", 1), 0, "damaged"},
		"a cut certificate":   {string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{0x30}})), 0, "block 1"},
	} {
		t.Run(name, func(t *testing.T) {
			cas, err := podidentity.ParseBundle([]byte(test.text))
			if len(cas) != test.cas || (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%d CAs, %v", len(cas), err)
			}
		})
	}
}

// Whatever a server sends, a sidecar gets a few CAs or none, and what it accepts survives a second server.
func FuzzParseBundle(f *testing.F) {
	ca, other := testca.New(f, "first"), testca.New(f, "other").PEM()
	for _, seed := range []string{ca.PEM(), ca.PEM() + other, "# a\n" + ca.PEM(), strings.Replace(other, "\n", "\r\n", 3), "-----BEGIN CERTIFICATE-----", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		cas, err := podidentity.ParseBundle(text)
		if err != nil {
			if len(cas) > 0 {
				t.Errorf("%d CAs and %v", len(cas), err)
			}
			return
		}
		if len(cas) == 0 || len(cas) > 16 || slices.ContainsFunc(cas, func(c *x509.Certificate) bool { return !c.IsCA }) {
			t.Errorf("%d CAs of %q", len(cas), text)
		}
		again, err := podidentity.ParseBundle([]byte(podidentity.EncodeBundle(cas)))
		if err != nil || !slices.EqualFunc(cas, again, (*x509.Certificate).Equal) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
