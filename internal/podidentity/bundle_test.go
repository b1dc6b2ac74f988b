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
	return first.PEM(), testca.New(t, "other").PEM(), encode("CERTIFICATE", first.Issue(t).Leaf.Raw)
}

func encode(kind string, content []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
}

// oneLine removes the line breaks within the base64, which makes it shorter
// than the encoding.
func oneLine(text string) string {
	begin, end := "-----BEGIN CERTIFICATE-----\n", "\n-----END CERTIFICATE-----\n"
	content := strings.TrimSuffix(strings.TrimPrefix(text, begin), end)
	return begin + strings.ReplaceAll(content, "\n", "") + end
}

func TestParseBundle(t *testing.T) {
	ca, other, leaf := certificates(t)
	key := encode("PRIVATE KEY", []byte("secret"))
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
		"too large encoded":   {oneLine(testca.New(t, strings.Repeat("x", 5940)).PEM()), 0, "bytes"},
		"another type":        {strings.ReplaceAll(ca, "CERTIFICATE", "X509 CRL"), 0, "block 1"},
		"a private key":       {ca + key, 0, "block 2"},
		"a damaged block":     {ca + strings.Replace(other, "END", "DEN", 1), 0, "damaged"},
		"a cut certificate":   {encode("CERTIFICATE", []byte{0x30}), 0, "block 1"},
	} {
		t.Run(name, func(t *testing.T) {
			cas, err := podidentity.ParseBundle([]byte(test.text))
			if len(cas) != test.cas || (err == nil) != (test.want == "") {
				t.Errorf("%d CAs, %v", len(cas), err)
			}
			if err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// Whatever a server sends, a sidecar gets a few CAs or none, and what it
// accepts survives a second server.
func FuzzParseBundle(f *testing.F) {
	ca, other := testca.New(f, "first").PEM(), testca.New(f, "other").PEM()
	f.Add([]byte("# a\n" + ca + other))
	f.Add([]byte(strings.Replace(other, "\n", "\r\n", 3)))
	f.Add([]byte("-----BEGIN CERTIFICATE-----"))
	f.Add([]byte(nil))
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
			t.Errorf("%q: got %d CAs back and the error %v, want the same %d", text, len(again), err, len(cas))
		}
	})
}
