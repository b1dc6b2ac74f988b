package aws

import (
	"strings"
	"testing"
	"time"
)

func TestParseRoleARN(t *testing.T) {
	for _, arn := range []string{
		"arn:aws:iam::123456789012:role/app",
		"arn:aws-cn:iam::123456789012:role/app",
		"arn:aws-us-gov:iam::123456789012:role/app",
		"arn:aws-iso-b:iam::123456789012:role/app",
		"arn:aws-eusc:iam::123456789012:role/app",
		"arn:aws:iam::123456789012:role/some/path/App_1+=,.@-",
		"arn:aws:iam::123456789012:role/" + strings.Repeat("a", 64),
		"arn:aws:iam::123456789012:role/" + strings.Repeat("p", 510) + "/a",
	} {
		a, err := ParseRoleARN(arn)
		if err != nil {
			t.Errorf("%q: %v", arn, err)
		} else if a.String() != arn {
			t.Errorf("%q comes back as %q", arn, a)
		}
	}
	a, err := ParseRoleARN("arn:aws:iam::123456789012:role/some/path/app")
	if want := (RoleARN{"aws", "123456789012", "/some/path/", "app"}); err != nil || a != want {
		t.Errorf("got %+v, %v", a, err)
	}
}

func TestParseRoleARNRefuses(t *testing.T) {
	for arn, want := range map[string]string{
		"":                                    `begin with "arn:"`,
		"role/app":                            `begin with "arn:"`,
		" arn:aws:iam::123456789012:role/app": `begin with "arn:"`,
		"arn:AWS:iam::123456789012:role/app":  `partition "AWS"`,
		"arn:aws-evil:iam::123456789012:role/app": `partition "aws-evil"`,
		"arn:aws":             `service`,
		"arn:aws:s3:::bucket": `service has to be iam, not "s3"`,
		"arn:aws:sts::123456789012:assumed-role/app/session":                "session (sts)",
		"arn:aws:iam:us-east-1:123456789012:role/app":                       `region, but it has "us-east-1"`,
		"arn:aws:iam::12345678901:role/app":                                 `12 digits, not "12345678901"`,
		"arn:aws:iam::12345678901x:role/app":                                "12 digits",
		"arn:aws:iam:::role/app":                                            `12 digits, not ""`,
		"arn:aws:iam::123456789012":                                         "role/<name>",
		"arn:aws:iam::123456789012:oidc-provider/oidc.eks.x/id/A":           "OIDC provider",
		"arn:aws:iam::123456789012:user/me":                                 "names a user",
		"arn:aws:iam::123456789012:role":                                    "role/<name>",
		"arn:aws:iam::123456789012:role/":                                   "name of the role is missing",
		"arn:aws:iam::123456789012:role/path/":                              "name of the role is missing",
		"arn:aws:iam::123456789012:role/a b":                                "letters, digits",
		"arn:aws:iam::123456789012:role/app\n":                              "letters, digits",
		"arn:aws:iam::123456789012:role/a:b":                                "letters, digits",
		"arn:aws:iam::123456789012:role/ä":                                  "letters, digits",
		"arn:aws:iam::123456789012:role/a b/app":                            "path of the role",
		"arn:aws:iam::123456789012:role//app":                               "path of the role",
		"arn:aws:iam::123456789012:role/" + strings.Repeat("a", 65):         "65 characters",
		"arn:aws:iam::123456789012:role/" + strings.Repeat("p", 512) + "/a": "path of the role has",
	} {
		if _, err := ParseRoleARN(arn); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", arn, err, want)
		}
	}
}

func FuzzRoleARN(f *testing.F) {
	f.Add("arn:aws:iam::123456789012:role/some/path/app")
	f.Add("arn:aws:sts::123456789012:assumed-role/app/session")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseRoleARN(s)
		if err == nil && (a.String() != s || a.Name == "" || len(a.Account) != 12) {
			t.Errorf("%q was accepted as %+v", s, a)
		}
	})
}

// What another service calls a role holds no more than AWS's names do: six
// fields, and nothing that cannot be sent.
func FuzzRoleOfAnotherService(f *testing.F) {
	for _, arn := range []string{"arn:minio:iam:::role/app", "arn:minio:iam:eu::role/app",
		"arn:aws:iam::team_a:role/path/app", "arn:aws:iam::123456789012:role/app"} {
		f.Add(arn)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseRoleARN(s, true)
		if err == nil && (!strings.HasPrefix(s, "arn:"+a.Partition+":iam:") ||
			!strings.HasSuffix(s, ":"+a.Account+":role"+a.Path+a.Name) || !validRolePath(s)) {
			t.Errorf("%q was accepted as %+v", s, a)
		}
		if _, strict := ParseRoleARN(s); strict == nil && err != nil {
			t.Errorf("%q is a role of AWS, but %v", s, err)
		}
	})
}

func TestSTSEndpoints(t *testing.T) {
	for _, endpoint := range []string{
		"https://sts.amazonaws.com", "https://sts.eu-central-1.amazonaws.com", "https://sts.eu-central-1.amazonaws.com/",
		"https://sts.eu-central-1.amazonaws.com:443", "https://sts-fips.us-gov-west-1.amazonaws.com",
		"https://sts.cn-north-1.amazonaws.com.cn", "https://sts.us-iso-east-1.c2s.ic.gov",
		"https://sts.us-isob-east-1.sc2s.sgov.gov",
		"https://sts.eu-isoe-west-1.cloud.adc-e.uk", "https://sts.us-isof-south-1.csp.hci.ic.gov",
		"https://sts.eusc-de-east-1.amazonaws.eu",
		"https://sts.eu-central-1.api.aws", "https://sts-fips.us-east-1.api.aws",
		"https://vpce-0abc123def4567890-ab12cd34.sts.eu-central-1.vpce.amazonaws.com",
		"https://vpce-0abc123def4567890-ab12cd34-eu-central-1a.sts.eu-central-1.vpce.amazonaws.com",
		"https://sts.internal.example:8443",
	} {
		if err := checkSTSEndpoint(endpoint, []string{"sts.internal.example:8443"}); err != nil {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
}

// Whatever looks like STS without being it would receive the tokens of
// ServiceAccounts.
func TestSTSEndpointLookAlikes(t *testing.T) {
	for _, endpoint := range []string{
		"https://evil.example/x.sts.amazonaws.com", "https://evil.example?sts.amazonaws.com",
		"https://evil.example#sts.amazonaws.com",
		"https://evil.example?.sts.amazonaws.com", "https://sts.amazonaws.com@evil.example",
		"https://sts.amazonaws.com:443@evil.example",
		"https://user@sts.amazonaws.com", "https://user:pw@sts.amazonaws.com", "https://@sts.amazonaws.com",
		"http://sts.amazonaws.com", "HTTP://sts.amazonaws.com", "ftp://sts.amazonaws.com", "//sts.amazonaws.com",
		"sts.amazonaws.com", "",
		"https://sts.amazonaws.com:8443", "https://sts.amazonaws.com:", "https://sts.amazonaws.com:0443",
		"https://sts.amazonaws.com:443:443",
		"https://sts.amazonaws.com.evil.example", "https://evilsts.amazonaws.com", "https://sts.evil-amazonaws.com",
		"https://sts.amazonaws.com.",
		"https://sts.amazonaws.comx", "https://xsts.us-east-1.amazonaws.com", "https://sts.us-east-1.evil.amazonaws.com",
		"https://evil.s3.amazonaws.com", "https://sts.s3.amazonaws.com", "https://sts.amazonaws.com/path",
		"https://sts.amazonaws.com//",
		"https://sts.amazonaws.com/?", "https://sts.amazonaws.com/#", "https://sts.amazonaws.com?x=1",
		`https://sts.amazonaws.com\.evil.example`,
		`https://evil.example\@sts.amazonaws.com`, "https://sts%2eamazonaws.com", "https://sts.amazonaws.com%00.evil.example",
		"https://sts.amazonaws.com%2f@evil.example", "https:sts.amazonaws.com", "https:///sts.amazonaws.com",
		"https://127.0.0.1", "https://[::1]",
		"https://169.254.169.254", "https://sts.us-east-1.amazonaws.com\n", " https://sts.amazonaws.com",
		"https://sts.amazonaws.com\t",
		"https://ѕts.amazonaws.com", "https://sts.amazonaws。com", "https://sts..amazonaws.com", "https://.sts.amazonaws.com",
		"https://STS.amazonaws.com.evil.example", "https://api.aws", "https://sts.api.aws",
		"https://evil.sts.us-east-1.vpce.amazonaws.com",
		"https://vpce-0abc123def4567890.sts.us-east-1.vpce.amazonaws.com",
		"https://vpce-0abc123def4567890-x.s3.us-east-1.vpce.amazonaws.com",
		"https://a.vpce-0abc123def4567890-x.sts.us-east-1.vpce.amazonaws.com", "https://sts.internal.example",
		"https://sts.internal.example:8443/x",
		"https://sts.internal.example:8443.evil.example",
	} {
		if err := checkSTSEndpoint(endpoint, []string{"sts.internal.example:8443"}); err == nil {
			t.Errorf("%q was accepted", endpoint)
		}
	}
}

func FuzzSTSEndpoint(f *testing.F) {
	f.Add("https://sts.eu-central-1.amazonaws.com")
	f.Add("https://vpce-0abc123def4567890-ab12cd34.sts.eu-central-1.vpce.amazonaws.com/")
	f.Add("https://sts.amazonaws.com@evil.example")
	f.Fuzz(func(t *testing.T, endpoint string) {
		if checkSTSEndpoint(endpoint, nil) != nil {
			return
		}
		host, ok := strings.CutPrefix(endpoint, "https://")
		host = strings.TrimSuffix(strings.TrimSuffix(host, "/"), ":443")
		known := false
		for _, suffix := range []string{"amazonaws.com", "api.aws", "amazonaws.com.cn", "api.amazonwebservices.com.cn",
			"amazonaws.eu", "api.amazonwebservices.eu",
			"c2s.ic.gov", "api.aws.ic.gov", "sc2s.sgov.gov", "api.aws.scloud", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk",
			"csp.hci.ic.gov", "api.aws.hci.ic.gov"} {
			known = known || strings.HasSuffix(host, "."+suffix)
		}
		if !ok || !known || strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" ||
			!strings.Contains("."+host, ".sts") {
			t.Errorf("%q was accepted", endpoint)
		}
	})
}

// The expected value was computed with another implementation of
// git-remote-codecommit's algorithm.
func TestGitSignature(t *testing.T) {
	got := signGit("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "git-codecommit.eu-central-1.amazonaws.com",
		"/v1/repos/my-repo", "eu-central-1", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	if want := "20260102T030405Z75682b6565bc81a24aa9be46c22e7abcf0aa28b4e70c1684607a12f3122f490f"; got != want {
		t.Errorf("got %s", got)
	}
}

func TestSessionNames(t *testing.T) {
	long := strings.Repeat("n", 253)
	for _, tc := range []struct{ namespace, name, want string }{
		{"tenant-a", "app", "tenant-a.app"},
		{"a", "b", "a.b"},
		{strings.Repeat("a", 32), strings.Repeat("b", 31), strings.Repeat("a", 32) + "." + strings.Repeat("b", 31)},
	} {
		if got := sessionName("", tc.namespace, tc.name); got != tc.want {
			t.Errorf("%s/%s: got %q, want %q", tc.namespace, tc.name, got, tc.want)
		}
	}
	if got := sessionName("hub", "tenant-a", "app"); got != "hub=tenant-a.app" {
		t.Errorf("with a prefix: %q", got)
	}
	one, two := sessionName("", strings.Repeat("a", 63), long), sessionName("", strings.Repeat("a", 63), long[1:]+"x")
	if len(one) != 64 || one == two || !strings.Contains(one, "@") {
		t.Errorf("long names: %q and %q", one, two)
	}
}

func FuzzSessionNamesAreInjective(f *testing.F) {
	f.Add("", "tenant-a", "app", "", "tenant", "a.app")
	f.Add("hub", "tenant-a", "app", "", "hub", "tenant-a.app")
	f.Add("", strings.Repeat("a", 63), strings.Repeat("b", 253), "hub", strings.Repeat("a", 63), strings.Repeat("b", 252))
	f.Fuzz(func(t *testing.T, prefix1, ns1, name1, prefix2, ns2, name2 string) {
		for _, prefix := range []string{prefix1, prefix2} {
			if !allOf(prefix, "-_") || len(prefix) > maxSessionPrefix {
				return
			}
		}
		for _, ns := range []string{ns1, ns2} {
			if ns == "" || strings.ContainsAny(ns, ".@=") {
				return
			}
		}
		for _, name := range []string{name1, name2} {
			if name == "" || strings.ContainsAny(name, "@=") {
				return
			}
		}
		one, two := sessionName(prefix1, ns1, name1), sessionName(prefix2, ns2, name2)
		if same := ns1 == ns2 && name1 == name2 && prefix1 == prefix2; (one == two) != same {
			t.Errorf("%q/%q/%q is %q, %q/%q/%q is %q", prefix1, ns1, name1, one, prefix2, ns2, name2, two)
		}
		if len(one) < 2 || len(one) > 64 {
			t.Errorf("%q has %d characters", one, len(one))
		}
	})
}
