package jwt_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/jwt"
)

func token(payload string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

func TestParse(t *testing.T) {
	c, err := jwt.Parse(token(`{"iss":"https://i","sub":"s","aud":["a","b"],"iat":1600000000,"exp":1700000000.9,` +
		`"kubernetes.io":{"serviceaccount":{"uid":"u"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if c.Issuer != "https://i" || c.Subject != "s" || !slices.Equal(c.Audience, []string{"a", "b"}) ||
		c.IssuedAt.Unix() != 1600000000 || c.Expiry.Unix() != 1700000000 || c.Kubernetes.ServiceAccount.UID != "u" {
		t.Errorf("got %+v", c)
	}
	if c, err = jwt.Parse(token(`{"aud":"one"}`)); err != nil || !slices.Equal(c.Audience, []string{"one"}) {
		t.Errorf("an audience that is a string: %+v, %v", c, err)
	}
}

// The receiver of a token compares the names of claims whole, so a claim in
// other letters must not hide the one that counts.
func TestParseComparesNamesWhole(t *testing.T) {
	c,
		err := jwt.Parse(
		token(
			`{"aud":"right","sub":"right","AUD":"wrong","Sub":"wrong","EXP":1700000000,"kubernetes.io":{"ServiceAccount":{"uid":"u"}}}`))
	if err != nil || !slices.Equal(c.Audience, []string{"right"}) || c.Subject != "right" || !c.Expiry.IsZero() ||
		c.Kubernetes.ServiceAccount.UID != "" {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestParseHasNoExpiryWhereItIsUnusable(t *testing.T) {
	for _, payload := range []string{`{}`, `{"exp":0}`, `{"exp":-1}`, `{"exp":1e300}`, `{"exp":null}`} {
		c, err := jwt.Parse(token(payload))
		if err != nil || !c.Expiry.IsZero() {
			t.Errorf("%s: %v, %v", payload, c, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"empty":            "",
		"opaque":           "ya29.secret-part",
		"four parts":       token(`{}`) + ".x",
		"no signature":     "e30.e30.",
		"not base64":       "e30.secret!!.c2ln",
		"not JSON":         token(`secret`),
		"not an object":    token(`["secret"]`),
		"audience a map":   token(`{"aud":{"secret":1}}`),
		"expiry a string":  token(`{"exp":"secret"}`),
		"subject a number": token(`{"sub":1}`),
		"too large":        token(`{"sub":"` + strings.Repeat("a", jwt.MaxSize) + `"}`),
	} {
		if _, err := jwt.Parse(in); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error quotes the token: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(token(`{"aud":"a","exp":1}`))
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, in string) {
		c, err := jwt.Parse(in)
		if (c == nil) == (err == nil) {
			t.Errorf("claims %v with error %v", c, err)
		}
	})
}
