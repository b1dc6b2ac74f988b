package oauth_test

import (
	"io"
	"math"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/internal/oauth"
	"github.com/workloadid/workloadid/internal/jwt"
)

func TestExchange(t *testing.T) {
	x := oauth.Exchange{SubjectToken: "s&s", SubjectTokenType: oauth.TokenTypeJWT, Audience: "a", Scope: "r w"}
	req, err := oauth.NewRequest(t.Context(), "https://sts.example/token?v=1", x.Form())
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := url.ParseQuery(string(body))
	want := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "subject_token": {"s&s"},
		"subject_token_type": {"urn:ietf:params:oauth:token-type:jwt"}, "audience": {"a"}, "scope": {"r w"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if req.Method != "POST" || req.URL.String() != "https://sts.example/token?v=1" ||
		req.Header.Get("Content-Type") != "application/x-www-form-urlencoded" ||
		req.Header.Get("Accept") != "application/json" {
		t.Errorf("got %s %s %v", req.Method, req.URL, req.Header)
	}
}

func TestParseAnswer(t *testing.T) {
	scope := "r w"
	for name, tc := range map[string]struct {
		body string
		want oauth.Answer
	}{
		"whole": {`{"access_token":"x","token_type":"Bearer","issued_token_type":"i","scope":"r w","expires_in":60}`,
			oauth.Answer{AccessToken: "x", TokenType: "Bearer", IssuedTokenType: "i", Scope: &scope, ExpiresIn: 60}},
		"nothing":      {`{}`, oauth.Answer{}},
		"null members": {`{"access_token":null,"scope":null,"expires_in":null,"error":null}`, oauth.Answer{}},
		"capitals":     {`{"ACCESS_TOKEN":"x"}`, oauth.Answer{}},
		"no strings":   {`{"access_token":1,"token_type":{},"scope":[]}`, oauth.Answer{}},
		"error": {`{"error":"c","error_description":"d"}`,
			oauth.Answer{Failed: true, Code: "c", Description: "d"}},
		"error is an object":  {`{"error":{}}`, oauth.Answer{Failed: true}},
		"error is empty":      {`{"error":""}`, oauth.Answer{}},
		"seconds in a string": {`{"expires_in":"60"}`, oauth.Answer{ExpiresIn: 60}},
		"fraction":            {`{"expires_in":0.5}`, oauth.Answer{ExpiresIn: 0.5}},
		"huge number":         {`{"expires_in":1e999}`, oauth.Answer{ExpiresIn: math.Inf(1)}},
		"no seconds":          {`{"expires_in":0}`, oauth.Answer{ExpiresIn: -1}},
		"negative":            {`{"expires_in":-5}`, oauth.Answer{ExpiresIn: -1}},
		"a word":              {`{"expires_in":"soon"}`, oauth.Answer{ExpiresIn: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := oauth.ParseAnswer([]byte(tc.body))
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	for _, body := range []string{"", "null", "[]", `"s3cret"`, `{"access_token":"s3cret`} {
		if got, err := oauth.ParseAnswer([]byte(body)); err == nil || strings.Contains(err.Error(), "s3cret") ||
			got != (oauth.Answer{}) {
			t.Errorf("%q: got %+v, %v", body, got, err)
		}
	}
}

func TestCheckToken(t *testing.T) {
	for token, want := range map[string]string{"": "no token", "a b": "invalid characters", "a\r\nb": "invalid characters",
		"ä":                                "invalid characters",
		strings.Repeat("x", jwt.MaxSize+1): "larger", "a.b-c~d/e+f==": ""} {
		if err := oauth.CheckToken(token); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v", token, err)
		}
	}
}
